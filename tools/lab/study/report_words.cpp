// The words that all forms of the report share.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/design.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

std::string against_text(const Comparison& c, bool of_speed) {
  if (c.verdict == Verdict::untested)
    return formatted("%s; one repeat, or too few, says nothing about chance", change_text(c.change, c.scale).c_str());
  const std::string range = formatted("%s, 95 %% interval %s, n = %d, p = %.2g after Holm's correction",
                                      change_text(c.change, c.scale).c_str(),
                                      interval_text(*c.interval, c.scale, c.n).c_str(), c.n, *c.paired_holm);
  if (c.verdict == Verdict::no_difference) return "no difference shown (" + range + ")";
  return std::string(verdict_text(c.verdict, of_speed)) + " than the reference (" + range + ")";
}

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

bool varies(const StudyRecord& study, size_t factor) {
  for (const CellRecord& cell : study.cells)
    if (cell.levels[factor].second != study.cells.front().levels[factor].second) return true;
  return false;
}

// Levels and numbers of ranks go together.
bool goes_with_ranks(const StudyRecord& study, size_t factor) {
  std::map<std::string, int64_t> ranks;
  std::map<int64_t, std::string> levels;
  for (const CellRecord& cell : study.cells) {
    const std::string& level = cell.levels[factor].second;
    const bool fits = ranks.try_emplace(level, cell.world_size).first->second == cell.world_size &&
                      levels.try_emplace(cell.world_size, level).first->second == level;
    if (!fits) return false;
  }
  return levels.size() > 1;
}

// Where several factors change with the ranks, the one that reads like them.
bool is_of_ranks(const StudyRecord& study, size_t factor) {
  if (!goes_with_ranks(study, factor)) return false;
  const bool reads = std::all_of(study.cells.begin(), study.cells.end(), [&](const CellRecord& cell) {
    return cell.levels[factor].second == std::to_string(cell.world_size);
  });
  for (size_t other = 0; !reads && other < study.cells.front().levels.size(); ++other)
    if (other != factor && goes_with_ranks(study, other)) return false;
  return true;
}

std::string change_text(double change, Scale scale) {
  if (scale == Scale::difference) return formatted("%+.4g", change);
  return change > 9 ? formatted("x %.3g", 1 + change) : percent(change);
}

std::string interval_text(const Interval& interval, Scale scale, int n) {
  if (scale == Scale::ratio)
    if (const double factor = std::sqrt((1 + interval.high) / (1 + interval.low)); !(factor <= 2))
      return formatted("n = %d shows nothing below a factor of ", n) +
             (factor < 1e6 ? formatted("%.2g", factor) : std::string("a million"));
  return change_text(interval.low, scale) + " to " + change_text(interval.high, scale);
}

const char* verdict_text(Verdict verdict, bool of_speed) {
  switch (verdict) {
    case Verdict::better:
      return of_speed ? "faster" : "better";
    case Verdict::worse:
      return of_speed ? "slower" : "worse";
    case Verdict::no_difference:
      return "no difference shown";
    default:
      return "untested";
  }
}

std::string value_text(const Analysis& analysis, double value) {
  return analysis.outcomes.empty() ? speed_text(value) : formatted("%.5g", value);
}

std::string ranked_by(const Analysis& analysis) {
  return analysis.outcomes.empty() ? "tokens per rank and second" : analysis.outcomes.front().name();
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

std::string numeric(const std::string& text) { return "<td class=n>" + text + "</td>"; }

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : c == '\n' ? std::string(" ") : std::string(1, c);
  return quoted + "\"";
}

// Repeats of cells of which every run was under a load that the study does not allow.
size_t repeats_under_load(const StudyRecord& study) {
  size_t count = 0;
  for (const CellRecord& cell : study.cells) {
    std::set<int64_t> blocks;
    for (const RunRecord& run : cell.disturbed) blocks.insert(run.block);
    for (const RunRecord& run : cell.runs) blocks.erase(run.block);
    count += blocks.size();
  }
  return count;
}

std::string repeats_text(const StudyRecord& study) {
  size_t ended = 0;
  size_t stopped = 0, spared = 0;
  for (const CellRecord& cell : study.cells) {
    ended += cell.runs.size();
    if (cell.stopped.repeats == 0) continue;
    ++stopped, spared += static_cast<size_t>(std::max<int64_t>(0, study.repeats - cell.stopped.repeats));
  }
  const auto of = [&](int64_t repeats) { return study.cells.size() * static_cast<size_t>(repeats) - spared; };
  const bool twice =
      std::any_of(study.cells.begin(), study.cells.end(), [](const CellRecord& c) { return c.is_noise; });
  const std::string cells = concat(study.cells.size() - (twice ? 1 : 0), " cells",
                                   twice ? " and the reference a second time (A/A), " : ", ") +
                            (stopped > 0 ? concat(stopped, " of them stopped early, ") : std::string());
  const size_t loaded = repeats_under_load(study);
  const std::string aside = loaded > 0 ? concat(", ", loaded, " more under load, which count for nothing") : "";
  if (study.until <= 0)
    return concat(cells, study.repeats, study.repeats == 1 ? " repeat" : " repeats", " each; ", ended, " of ",
                  of(study.repeats), " runs have ended", aside, ".");
  const std::string rule = concat(cells, "up to ", study.repeats, " repeats each, until a difference of ",
                                  100 * study.until, " % would be shown; ");
  if (study.enough > 0) return concat(rule, study.enough, " were enough, and the study has ended.");
  return concat(rule, ended, " of at most ", of(study.repeats), " runs have ended", aside, ".");
}

std::string rule_text(const Warmup& warmup) {
  if (warmup.only_first > 0) return concat("A run's speed is the mean of its first ", warmup.only_first, " steps.");
  const std::string figure = warmup.quantile >= 0.5 ? "median" : warmup.quantile > 0 ? "10 % quantile" : "fastest one";
  if (!warmup.steady)
    return concat("A run's speed is the ", figure, " of its steps after the first ", warmup.first, ".");
  return concat("A run's speed is the ", figure, " of its steady steps: from the first window of ", warmup.window,
                " steps whose median is within ", 100 * warmup.tolerance, " % of that of the second half of the run.");
}

std::string percent(double change) { return formatted("%+.1f %%", 100 * change); }

std::string speed_text(double tgs) { return formatted(tgs < 1000 ? "%.4g" : "%.0f", tgs); }

std::string megabytes_text(double bytes) { return bytes > 0 ? formatted("%.1f", bytes / 1e6) : ""; }

bool is_all_levels(const CellRecord& cell) {
  std::string by_levels;
  for (const auto& [factor, level] : cell.levels) by_levels += (by_levels.empty() ? "" : ",") + factor + "=" + level;
  return file_name(by_levels) == cell.id;
}

std::string label_of(const CellRecord& cell, const StudyRecord& study) {
  if (cell.is_noise) return "A/A: the reference again";
  std::string label;
  for (size_t f = 0; f < cell.levels.size(); ++f)
    if (varies(study, f)) label += (label.empty() ? "" : ", ") + cell.levels[f].first + " " + cell.levels[f].second;
  return !is_all_levels(cell) || label.empty() ? cell.id : label;
}

std::string state_text(const CellResult& result) {
  if (result.state == State::ok) return "ok";
  if (!result.begun && !result.cell->disturbed.empty()) return "under load alone: no run counts";
  if (!result.begun && result.state != State::refused) return "not run yet";
  const Value* const end = result.cell->runs.empty() ? nullptr : &result.cell->runs.back().end;
  const auto text = [&](const char* key) {
    const Value* const value = end ? end->find(key) : nullptr;
    return value && value->is_string() ? value->as_string() : std::string();
  };
  const auto number = [&](const char* key) {
    const Value* const value = end ? end->find(key) : nullptr;
    return value && value->is_number() ? value->as_int() : int64_t{-1};
  };
  if (result.state == State::oom) {
    std::string where = text("phase");
    if (number("bytes") > 0)
      where += formatted("%s%.1f MB wanted", where.empty() ? "" : ", ", static_cast<double>(number("bytes")) / 1e6);
    return "out of memory" + (where.empty() ? "" : " (" + where + ")");
  }
  if (result.state == State::crashed) {
    std::string who = number("rank") >= 0 ? concat("rank ", number("rank")) : "";
    const std::string how = number("signal") > 0 ? concat("signal ", number("signal"), ", ", text("signal_name"))
                                                 : concat("exit ", number("exit"));
    return "crashed (" + who + (who.empty() ? "" : ", ") + how + ")";
  }
  if (result.state == State::refused) return "refused: " + first_line(result.reason);
  if (result.state == State::nan) return "loss not finite";
  if (result.state == State::timeout) return "timeout";
  return "skipped";
}

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

std::vector<std::string> ranking_lines(const StudyRecord& study, const Analysis& analysis) {
  std::vector<std::string> lines;
  const bool of_speed = analysis.outcomes.empty();
  int place = 0;
  for (const size_t i : analysis.ranking) {
    const CellResult& result = analysis.cells[i];
    const std::string value = value_text(analysis, result.summary().mean);
    std::string line = formatted("%d. %s: ", ++place, label_of(*result.cell, study).c_str()) +
                       (of_speed ? value + " " + ranked_by(analysis) : ranked_by(analysis) + " " + value);
    line += result.cell->is_reference ? "; the reference" : "; " + against_text(result.compared(), of_speed);
    if (result.gate == Gate::not_comparable) line += "; another batch, so its losses are not compared";
    if (result.is_pareto) line += concat("; no cell is both ", of_speed ? "faster" : "better", " and smaller");
    lines.push_back(line);
  }
  const std::vector<std::string> notes = notes_of(study, analysis);
  lines.insert(lines.end(), notes.begin(), notes.end());
  return lines;
}

}  // namespace drivetrain::study
