// What a report says below its ranking: what is missing, how much is noise, who was stopped, how busy the host was.
#include <algorithm>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

std::string repeats_needed(const Sensitivity& s, double change) {
  const int64_t needed = s.needed(change);
  return needed > 1000 ? "more than 1000" : concat(needed);
}

// In words where the repeats show nothing that anybody would call a small difference.
std::string shown_text(const Sensitivity& s) {
  const double shown = s.shown();
  if (s.scale == Scale::difference) return formatted("a difference of %.3g", shown);
  return shown > 1 ? formatted("nothing below a factor of %.2g", 1 + shown) : formatted("%.2g %%", 100 * shown);
}

std::string sensitivity_text(const Analysis& analysis) {
  const Sensitivity& s = *analysis.sensitivity;
  std::string text = "Repeats: ";
  if (s.scale == Scale::difference)
    return text + formatted("differences of pairs vary by %.3g from repeat to repeat; n = %d shows ", s.sd, s.n) +
           shown_text(s) + ".";
  text += analysis.noise ? formatted(
                               "the A/A pair varies by %.2g %% about zero from repeat to repeat, all pairs with the "
                               "reference by %.2g %%",
                               100 * *analysis.noise, 100 * s.sd)
                         : formatted("pairs with the reference vary by %.2g %% from repeat to repeat", 100 * s.sd);
  text += formatted(" (n = %d). To be shown with 80 %% power after Holm's ", s.n);
  text += concat("correction, a difference of 1 % needs ", repeats_needed(s, 0.01), " repeats, of 3 % ",
                 repeats_needed(s, 0.03), ", of 10 % ", repeats_needed(s, 0.1), "; n = ", s.n, " shows ");
  return text + shown_text(s) + ".";
}

std::string missing_text(const std::string& name, const CellResult& result, const Outcome& outcome, size_t index) {
  const OutcomeResult& own = result.outcomes[index];
  if (own.values.empty()) return concat("Not ranked by ", outcome.name(), ": ", name, ": ", own.why_not);
  return concat(name, ": ", own.missing, " of ", result.ok, " runs have no ", outcome.name(), " (", own.why_not,
                "); its figures are those of the others");
}

void add_outcome_notes(const StudyRecord& study, const Analysis& analysis, std::vector<std::string>& lines) {
  for (size_t i = 0; i < analysis.outcomes.size(); ++i) {
    const Outcome& outcome = analysis.outcomes[i];
    const bool none = std::all_of(analysis.cells.begin(), analysis.cells.end(),
                                  [&](const CellResult& result) { return result.outcomes[i].values.empty(); });
    const auto any = std::find_if(analysis.cells.begin(), analysis.cells.end(),
                                  [&](const CellResult& result) { return result.outcomes[i].missing > 0; });
    if (none && any != analysis.cells.end()) {
      lines.push_back(concat("No run has the outcome ", outcome.name(), ": ", any->outcomes[i].why_not,
                             ". Correct \"outcome\" in the study's file; `drivetrain study FILE --grow` writes the ",
                             "report again from what has run."));
      continue;
    }
    for (const CellResult& result : analysis.cells)
      if (result.outcomes[i].missing > 0)
        lines.push_back(missing_text(label_of(*result.cell, study), result, outcome, i));
  }
}

// Runs that others disturbed, and how busy the host was beside all others.
void add_load_notes(const StudyRecord& study, std::vector<std::string>& lines) {
  double most = 0;
  size_t runs = 0;
  for (const CellRecord& cell : study.cells)
    for (const RunRecord& run : cell.runs)
      if (run.load) most = std::max(most, run.load->taken()), ++runs;
  const auto share = [](double part) { return formatted("%.1f %%", 100 * part); };
  if (runs > 0)
    lines.push_back("Load: during the runs that count, others took up to " + share(most) +
                    " of the host's CPU time, stolen time with it" +
                    (study.allow_load > 0 ? "; \"allow_load\" is " + share(study.allow_load) + "." : "."));
  for (const CellRecord& cell : study.cells) {
    if (cell.disturbed.empty()) continue;
    double least = 1;
    for (const RunRecord& run : cell.disturbed) least = std::min(least, run.load ? run.load->taken() : 1);
    lines.push_back(concat(label_of(cell, study), ": ", cell.disturbed.size(),
                           cell.disturbed.size() == 1 ? " run" : " runs",
                           " under load left out of all figures: others ", "took ", share(least),
                           " of the CPU time and more, \"allow_load\" is ", share(study.allow_load),
                           ". They stay in runs.csv and in their folders."));
  }
}

void add_stop_notes(const StudyRecord& study, std::vector<std::string>& lines) {
  std::map<std::string, std::string> labels;
  for (const CellRecord& cell : study.cells) labels[cell.id] = label_of(cell, study);
  bool any = false;
  for (const CellRecord& cell : study.cells) {
    const EarlyEnd& stop = cell.stopped;
    if (stop.repeats == 0) continue;
    any = true;
    lines.push_back(concat(
        "Stopped early: ", labels[cell.id], " after ", stop.looked_at > 0 ? stop.looked_at : stop.repeats, " repeats",
        stop.looked_at > 0 ? concat(" of one of the merged studies (it has ", stop.repeats, ")") : std::string(),
        ": it could not win against ", labels.contains(stop.rival) ? labels[stop.rival] : stop.rival, " (",
        change_text(stop.change, stop.is_ratio ? Scale::ratio : Scale::difference),
        formatted(", one-sided p = %.2g).", stop.p)));
  }
  if (any)
    lines.push_back(
        formatted("Cells stop where a one-sided paired t-test against the best one so far shows them to be worse, at "
                  "%g %% over all "
                  "rivals and looks: that is the largest chance that the best cell of all was stopped, if differences "
                  "are normal.",
                  100 * study.stop_level));
}

void add_noise_notes(const Analysis& analysis, std::vector<std::string>& lines) {
  if (analysis.is_one_run) {
    lines.push_back(
        concat("Repeats: those of a cell have the same ", analysis.outcomes.front().name(),
               " to the last digit: they are one run, done again with one seed, and say nothing of chance. ",
               "`\"seed_per_repeat\": true` in the study's file gives every repeat a seed of its own."));
    return;
  }
  if (analysis.noise_alarm)
    lines.push_back(
        "Alarm: the 95 % interval of the A/A pair, the reference against itself, excludes zero. By chance that happens "
        "in "
        "one of twenty studies; else something differs between runs that should be alike, and a difference of this "
        "size "
        "says nothing.");
  if (analysis.noise_floor)
    lines.push_back("Noise floor: the reference against itself differs by up to " +
                    (analysis.scale == Scale::difference ? formatted("%.3g", *analysis.noise_floor)
                     : *analysis.noise_floor > 1         ? formatted("a factor of %.2g", 1 + *analysis.noise_floor)
                                                         : formatted("%.1f %%", 100 * *analysis.noise_floor)) +
                    "; a single cell's smaller difference says nothing.");
  if (analysis.sensitivity) lines.push_back(sensitivity_text(analysis));
}

}  // namespace

std::vector<std::string> notes_of(const StudyRecord& study, const Analysis& analysis) {
  std::vector<std::string> lines;
  if (study.trim > 0)
    lines.push_back(
        formatted("Places go by the differences to the reference with %g %% of the repeats set aside at each "
                  "end, and so do effects; %s means of all repeats.",
                  100 * study.trim, analysis.outcomes.empty() ? "speeds are" : "figures are"));
  for (const CellResult& result : analysis.cells) {
    const std::string name = label_of(*result.cell, study);
    if (result.gate == Gate::failed)
      lines.push_back(
          formatted("Not ranked: %s computes something else: at step %lld its loss differs from the reference's "
                    "by %.2g of it, allowed are %.2g (%s)",
                    name.c_str(), static_cast<long long>(result.loss_step), result.loss_difference, study.gate,
                    percent(result.against.change).c_str()));
    else if (result.ok == 0)
      lines.push_back("Not ranked: " + name + ": " + state_text(result));
  }
  if (study.gate == 0 && analysis.outcomes.empty())
    lines.push_back("Losses of cells are not compared: the study has no `gate`.");
  add_outcome_notes(study, analysis, lines);
  add_noise_notes(analysis, lines);
  add_load_notes(study, lines);
  add_stop_notes(study, lines);
  if (const std::string slots = slots_text(study); !slots.empty()) lines.push_back(slots);
  return lines;
}

}  // namespace drivetrain::study
