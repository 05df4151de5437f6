// The outcomes of a study's cells, and their comparisons with the reference's.
#include <algorithm>
#include <limits>

#include "study/analysis.h"

namespace drivetrain::study {
namespace {

Progressed progress_of(const RunRecord& run) { return {&run.figures, &run.tokens, &run.step_s}; }

bool is_equal(const Outcome& outcome) {
  return outcome.at == Outcome::At::equal_tokens || outcome.at == Outcome::At::equal_seconds;
}

OutcomeResult outcome_result(const CellRecord& cell, const Outcome& outcome) {
  OutcomeResult result;
  for (const RunRecord& run : cell.runs) {
    if (run.state != State::ok) continue;
    const Found found = found_in(progress_of(run), outcome);
    if (found.missing.empty())
      result.values.push_back(found.value), result.blocks.push_back(run.block);
    else
      ++result.missing, result.why_not = found.missing;
  }
  const bool positive = std::all_of(result.values.begin(), result.values.end(), [](double x) { return x > 0; });
  result.summary = positive ? positive_summary_of(result.values) : summary_of(result.values);
  return result;
}

// All cells are compared on one scale.
Scale scale_of(const std::vector<CellResult>& cells, size_t outcome) {
  for (const CellResult& result : cells)
    for (const double value : result.outcomes[outcome].values)
      if (value <= 0) return Scale::difference;
  return Scale::ratio;
}

}  // namespace

void fix_equal_points(const std::vector<const StudyRecord*>& studies, std::vector<Outcome>& outcomes) {
  for (Outcome& outcome : outcomes) {
    if (!is_equal(outcome) || outcome.point > 0) continue;
    outcome.point = std::numeric_limits<double>::infinity();
    for (const StudyRecord* const study : studies)
      for (const CellRecord& cell : study->cells)
        for (const RunRecord& run : cell.runs)
          if (const double reach = run.state == State::ok ? reach_of(progress_of(run), outcome) : -1; reach >= 0)
            outcome.point = std::min(outcome.point, reach);
  }
}

void add_outcomes(const StudyRecord& study, Analysis& analysis) {
  analysis.outcomes = study.outcomes;
  fix_equal_points({&study}, analysis.outcomes);
  for (const Outcome& outcome : analysis.outcomes)
    for (CellResult& result : analysis.cells) result.outcomes.push_back(outcome_result(*result.cell, outcome));
  const auto reference = std::find_if(analysis.cells.begin(), analysis.cells.end(),
                                      [](const CellResult& result) { return result.cell->is_reference; });
  for (size_t i = 0; i < analysis.outcomes.size(); ++i) {
    const Scale scale = scale_of(analysis.cells, i);
    if (i == 0) analysis.scale = scale;
    std::vector<Comparison*> comparisons;
    const OutcomeResult& base = reference->outcomes[i];
    for (CellResult& result : analysis.cells) {
      OutcomeResult& own = result.outcomes[i];
      own.against.scale = scale;
      if (result.cell->is_reference || own.values.empty() || base.values.empty()) continue;
      own.against = compared(own.values, own.blocks, base.values, base.blocks, study.trim, scale);
      comparisons.push_back(&own.against);
    }
    correct(comparisons, analysis.outcomes[i].higher);
  }
}

}  // namespace drivetrain::study
