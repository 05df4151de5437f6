// The report as CSV: a row per cell, a row per run, and a column per factor in both.
#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

using Fields = std::vector<std::string>;

std::string exact(double value) { return formatted("%.9g", value); }
std::string exact(const std::optional<double>& value) { return value ? exact(*value) : std::string(); }
std::string only_if(bool there, double value) { return there ? exact(value) : std::string(); }

std::string csv_line(const Fields& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) line += (i > 0 ? "," : "") + csv_field(fields[i]);
  return line + "\n";
}

// A factor may be called as one of the table's own columns is.
void add_factors(const CellRecord& cell, const Fields& own, Fields& head) {
  for (const auto& [factor, level] : cell.levels)
    head.push_back(std::find(own.begin(), own.end(), factor) == own.end() ? factor : "factor." + factor);
}

void add_levels(const CellRecord& cell, Fields& row) {
  for (const auto& [factor, level] : cell.levels) row.push_back(level);
}

const Fields kCellColumns = {"state",
                             "ranks",
                             "n",
                             "tgs_padded",
                             "tgs_low",
                             "tgs_high",
                             "tgs_real",
                             "tgs_loss",
                             "samples_per_s",
                             "samples_per_s_sd",
                             "step_s_median",
                             "cv",
                             "change",
                             "change_low",
                             "change_high",
                             "p_holm",
                             "verdict",
                             "gate",
                             "peak_memory_bytes",
                             "tensor_memory_bytes",
                             "planned_bytes",
                             "startup_s",
                             "communication_share",
                             "joules_per_1000_tokens",
                             "mfu",
                             "hfu",
                             "pareto",
                             "stopped_after"};

void add_speed(const CellResult& r, Fields& row) {
  const bool ok = r.ok > 0, has_interval = ok && r.speed.confidence;
  const Comparison& c = r.against;
  const Fields fields = {state_name(r.state),
                         concat(r.cell->world_size),
                         concat(r.ok),
                         only_if(ok, r.speed.mean),
                         has_interval ? exact(r.speed.confidence->low) : "",
                         has_interval ? exact(r.speed.confidence->high) : "",
                         only_if(ok, r.tgs_real),
                         only_if(ok, r.tgs_loss),
                         only_if(ok, r.samples_per_s.mean),
                         exact(r.samples_per_s.sd),
                         only_if(ok, r.step_median),
                         exact(r.speed.cv),
                         only_if(c.n > 0, c.change),
                         c.interval ? exact(c.interval->low) : "",
                         c.interval ? exact(c.interval->high) : "",
                         exact(c.paired_holm),
                         verdict_text(c.verdict, true),
                         gate_name(r.gate),
                         ok ? formatted("%.0f", r.peak_bytes) : "",
                         ok && r.tensor_bytes > 0 ? formatted("%.0f", r.tensor_bytes) : "",
                         formatted("%.0f", r.cell->planned_bytes),
                         ok ? formatted("%.3f", r.startup_s) : "",
                         r.part_shares.empty() ? "" : formatted("%.6f", r.communication_share),
                         exact(r.joules_per_1k_tokens),
                         exact(r.mfu),
                         exact(r.hfu),
                         r.is_pareto ? "yes" : "no",
                         r.cell->stopped.repeats > 0 ? concat(r.cell->stopped.repeats) : ""};
  row.insert(row.end(), fields.begin(), fields.end());
}

void add_outcome(const OutcomeResult& own, Fields& row) {
  const Comparison& c = own.against;
  const bool any = !own.values.empty();
  const Fields fields = {concat(own.values.size()),
                         only_if(any, own.summary.mean),
                         exact(own.summary.sd),
                         own.summary.confidence ? exact(own.summary.confidence->low) : "",
                         own.summary.confidence ? exact(own.summary.confidence->high) : "",
                         only_if(c.n > 0, c.change),
                         c.interval ? exact(c.interval->low) : "",
                         c.interval ? exact(c.interval->high) : "",
                         exact(c.paired_holm),
                         verdict_text(c.verdict, false)};
  row.insert(row.end(), fields.begin(), fields.end());
}

// A run's value of an outcome; none where it was not ok or does not have it.
std::string outcome_of_block(const OutcomeResult& own, const RunRecord& run) {
  const auto at = std::find(own.blocks.begin(), own.blocks.end(), run.block);
  if (run.state != State::ok || at == own.blocks.end()) return "";
  return exact(own.values[static_cast<size_t>(at - own.blocks.begin())]);
}

const Fields kRunColumns = {"repeat",
                            "seed",
                            "state",
                            "tgs_padded",
                            "step_s",
                            "peak_memory_bytes",
                            "tensor_memory_bytes",
                            "startup_s",
                            "wall_s",
                            "began",
                            "ended",
                            "run",
                            "folder",
                            "reason",
                            "counts",
                            "load_average",
                            "others_cpu",
                            "stolen_cpu",
                            "clock_mhz",
                            "slot",
                            "cores",
                            "hosts",
                            "beside"};

std::string beside_text(const RunRecord& run) {
  std::string text;
  for (const auto& [cell, block] : run.beside) text += concat(text.empty() ? "" : "; ", cell, " repeat ", block + 1);
  return text;
}

// `counts`: its figures are in the study's; else others disturbed it.
Fields run_row(const CellResult& result, const RunRecord& run, bool counts) {
  Fields row = {result.cell->id};
  add_levels(*result.cell, row);
  const auto at = std::find(result.blocks.begin(), result.blocks.end(), run.block);
  const bool ok = run.state == State::ok, timed = counts && ok && at != result.blocks.end();
  const double tgs = timed ? result.tgs[static_cast<size_t>(at - result.blocks.begin())] : 0;
  const double tokens = static_cast<double>(result.cell->batch * result.cell->seq_length);
  const double peak = peak_of(run), tensors = tensors_of(run);
  const Fields fields = {concat(run.block + 1),
                         run.seed ? concat(*run.seed) : "",
                         state_name(run.state),
                         only_if(timed, tgs),
                         only_if(timed, tokens / static_cast<double>(result.cell->world_size) / tgs),
                         ok && peak > 0 ? formatted("%.0f", peak) : "",
                         ok && tensors > 0 ? formatted("%.0f", tensors) : "",
                         only_if(ok, run.startup_s),
                         exact(run.wall_s),
                         run.began,
                         run.ended,
                         run.id,
                         run.folder,
                         first_line(run.reason),
                         counts ? "yes" : "no",
                         run.load ? exact(run.load->average) : "",
                         run.load ? exact(run.load->others) : "",
                         run.load ? exact(run.load->stolen) : "",
                         run.load ? exact(run.load->clock_mhz) : "",
                         run.slot > 0 ? concat(run.slot) : "",
                         run.cores,
                         run.hosts,
                         beside_text(run)};
  row.insert(row.end(), fields.begin(), fields.end());
  for (const OutcomeResult& own : result.outcomes) row.push_back(counts ? outcome_of_block(own, run) : "");
  return row;
}

}  // namespace

const char* gate_name(Gate gate) {
  switch (gate) {
    case Gate::passed:
      return "passed";
    case Gate::failed:
      return "failed";
    case Gate::not_comparable:
      return "not comparable";
    default:
      return "off";
  }
}

std::string csv_text(const Analysis& analysis) {
  Fields head = {"cell"}, own = kCellColumns;
  own.insert(own.end(), {"cell", "reproduce"});
  if (!analysis.cells.empty()) add_factors(*analysis.cells.front().cell, own, head);
  head.insert(head.end(), kCellColumns.begin(), kCellColumns.end());
  for (const Outcome& outcome : analysis.outcomes)
    for (const char* part :
         {"_n", "", "_sd", "_low", "_high", "_change", "_change_low", "_change_high", "_p_holm", "_verdict"})
      head.push_back(outcome.column() + part);
  head.push_back("reproduce");
  std::string text = csv_line(head);
  for (const CellResult& r : analysis.cells) {
    Fields row = {r.cell->id};
    add_levels(*r.cell, row), add_speed(r, row);
    for (const OutcomeResult& outcome : r.outcomes) add_outcome(outcome, row);
    row.push_back(r.cell->reproduce);
    text += csv_line(row);
  }
  return text;
}

std::string runs_csv(const StudyRecord& study, const Analysis& analysis) {
  Fields head = {"cell"}, own = kRunColumns;
  own.push_back("cell");
  if (!study.cells.empty()) add_factors(study.cells.front(), own, head);
  head.insert(head.end(), kRunColumns.begin(), kRunColumns.end());
  for (const Outcome& outcome : analysis.outcomes) head.push_back(outcome.column());
  std::string text = csv_line(head);
  for (const CellResult& result : analysis.cells) {
    for (const RunRecord& run : result.cell->runs) text += csv_line(run_row(result, run, true));
    for (const RunRecord& run : result.cell->disturbed) text += csv_line(run_row(result, run, false));
  }
  return text;
}

}  // namespace drivetrain::study
