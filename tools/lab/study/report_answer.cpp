// What a reader asks first: which cell is best, by how much, and how sure that is.
#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "study/report.h"

namespace drivetrain::study {
namespace {

constexpr size_t kMostNamed = 4;

// "+4.2 % (95 % interval +1.1 % to +7.4 %, p 0.02)"
std::string difference_in_words(const Comparison& c) {
  std::string text = change_text(c.change, c.scale), more;
  if (c.interval) more = "95 % interval " + interval_text(*c.interval, c.scale, c.n);
  if (c.paired_holm) more += formatted(more.empty() ? "p %.2g" : ", p %.2g", *c.paired_holm);
  return more.empty() ? text : text + " (" + more + ")";
}

std::string best_text(const StudyRecord& study, const Analysis& analysis, const CellResult& best,
                      const CellResult& reference) {
  const Summary& summary = best.summary();
  std::string text = concat("Best by ", ranked_by(analysis), ": ", label_of(*best.cell, study), ", ",
                            value_text(analysis, summary.mean), " (");
  if (summary.confidence && analysis.scale == Scale::ratio)
    text += formatted("95 %% interval %s to %s, ", value_text(analysis, summary.confidence->low).c_str(),
                      value_text(analysis, summary.confidence->high).c_str());
  text += concat("n = ", summary.n, ").");
  if (best.cell->is_reference) return text + " It is the reference.";
  const Comparison& c = best.compared();
  if (c.n == 0) return text + " The reference, " + label_of(*reference.cell, study) + ", has no run to compare with.";
  return text + " Against the reference, " + label_of(*reference.cell, study) + ": " + difference_in_words(c) + ": " +
         (analysis.is_one_run              ? "repeats are one run, done again, and do not say whether that is chance"
          : c.verdict == Verdict::untested ? "too few repeats to say whether that is chance"
                                           : verdict_text(c.verdict, analysis.outcomes.empty())) +
         ".";
}

// How the others stand to the best one, which the same runs have chosen. Those that share no repeat with it are left
// out: nothing was measured.
std::string others_text(const StudyRecord& study, const Analysis& analysis) {
  const CellResult& best = analysis.cells[analysis.ranking.front()];
  struct Other {
    std::string label;
    Comparison against;
  };
  std::vector<Other> others;
  for (size_t i = 1; i < analysis.ranking.size(); ++i) {
    const CellResult& one = analysis.cells[analysis.ranking[i]];
    const Comparison c =
        compared(one.values(), one.value_blocks(), best.values(), best.value_blocks(), study.trim, analysis.scale);
    if (c.n > 0) others.push_back({label_of(*one.cell, study), c});
  }
  if (others.empty()) return "No other cell has a repeat in common with it.";
  std::vector<Comparison*> tested;
  for (Other& other : others) tested.push_back(&other.against);
  correct(tested, is_higher_better(analysis));
  std::vector<std::string> alike;
  for (const Other& other : others)
    if (other.against.verdict != Verdict::worse)
      alike.push_back(other.label + " (" + change_text(other.against.change, other.against.scale) + ")");
  if (alike.empty())
    return concat(others.size() == 1 ? "The other one is" : concat("All ", others.size(), " others are"),
                  " shown to be ", verdict_text(Verdict::worse, analysis.outcomes.empty()), "; the nearest, ",
                  others.front().label, ", by ", difference_in_words(others.front().against), ".");
  const size_t count = alike.size(), more = count > kMostNamed ? count - kMostNamed : 0;
  alike.resize(count - more);
  return concat("Not shown to be worse than it: ", count, " of the ", others.size(), " others: ", join(alike, "; "),
                more > 0 ? concat(" and ", more, " more") : "", ".");
}

}  // namespace

std::vector<std::string> answer_of(const StudyRecord& study, const Analysis& analysis) {
  const bool any =
      std::any_of(analysis.cells.begin(), analysis.cells.end(), [](const CellResult& r) { return r.begun; });
  if (analysis.ranking.empty())
    return {any ? "No cell has a place: see below what ended them." : "No run has ended yet."};
  const auto reference = std::find_if(analysis.cells.begin(), analysis.cells.end(),
                                      [](const CellResult& r) { return r.cell->is_reference; });
  std::vector<std::string> lines = {best_text(study, analysis, analysis.cells[analysis.ranking.front()], *reference)};
  if (analysis.ranking.size() > 1 && !analysis.is_one_run) lines.push_back(others_text(study, analysis));
  if (analysis.noise_alarm) lines.push_back("Read none of this before the alarm below.");
  return lines;
}

}  // namespace drivetrain::study
