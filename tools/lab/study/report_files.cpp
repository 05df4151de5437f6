// The report as CSV, JSON and Markdown, and all of its files.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

Value optional(const std::optional<double>& value) { return value ? Value(*value) : Value(); }

Value summary_value(const Summary& summary) {
  Value value = Value::object();
  value.set("n", int64_t{summary.n}), value.set("mean", summary.mean), value.set("median", summary.median);
  value.set("sd", optional(summary.sd)), value.set("cv", optional(summary.cv));
  value.set("low", summary.confidence ? Value(summary.confidence->low) : Value());
  value.set("high", summary.confidence ? Value(summary.confidence->high) : Value());
  return value;
}

Value comparison_value(const Comparison& c, bool of_speed = true) {
  Value value = Value::object();
  value.set("n", int64_t{c.n}), value.set("change", c.change), value.set("verdict", verdict_text(c.verdict, of_speed));
  value.set("low", c.interval ? Value(c.interval->low) : Value()),
      value.set("high", c.interval ? Value(c.interval->high) : Value());
  value.set("p_paired", optional(c.paired)), value.set("p_paired_holm", optional(c.paired_holm));
  value.set("p_welch", optional(c.welch)), value.set("p_welch_holm", optional(c.welch_holm));
  value.set("p_mann_whitney", optional(c.mann_whitney)),
      value.set("p_mann_whitney_holm", optional(c.mann_whitney_holm));
  return value;
}

Value peaks_value(const CellResult& result) {
  for (auto run = result.cell->runs.rbegin(); run != result.cell->runs.rend(); ++run)
    if (const Value* const peaks = run->end.find("peak_memory"); peaks && run->state == State::ok) return *peaks;
  return Value::object();
}

Value runs_value(const std::vector<RunRecord>& runs) {
  Value list = Value::array();
  for (const RunRecord& run : runs) {
    Value value = Value::object();
    value.set("run", run.id), value.set("repeat", run.block + 1), value.set("state", state_name(run.state));
    value.set("began", run.began), value.set("ended", run.ended), value.set("wall_s", run.wall_s);
    value.set("folder", run.folder), value.set("reason", run.reason);
    if (run.slot > 0) {
      Value beside = Value::array();
      for (const auto& [cell, block] : run.beside) beside.items().push_back(concat(cell, " repeat ", block + 1));
      value.set("slot", run.slot), value.set("cores", run.cores), value.set("hosts", run.hosts),
          value.set("beside", std::move(beside));
    }
    if (run.load) value.set("load", value_of(*run.load));
    list.items().push_back(std::move(value));
  }
  return list;
}

// Of a step, with communication beside its parts; null where the runs did not say.
Value shares_value(const CellResult& result) {
  if (result.part_shares.empty()) return {};
  Value value = Value::object();
  for (const auto& [part, share] : result.part_shares) value.set(part, share);
  return value;
}

Value outcomes_value(const CellResult& result, const std::vector<Outcome>& outcomes) {
  Value all = Value::object();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const OutcomeResult& own = result.outcomes[i];
    Value value = Value::object(), values = Value::array();
    for (const double one : own.values) values.items().push_back(one);
    value.set("better", outcomes[i].higher ? "higher" : "lower"), value.set("runs", std::move(values));
    value.set("summary", summary_value(own.summary)), value.set("missing", int64_t{own.missing});
    value.set("why_missing", own.why_not), value.set("against_reference", comparison_value(own.against, false));
    value.set("compared_by", own.against.scale == Scale::ratio ? "ratio" : "difference");
    all.set(outcomes[i].name(), std::move(value));
  }
  return all;
}

Value cell_value(const CellResult& result, const std::vector<Outcome>& outcomes) {
  Value value = Value::object(), levels = Value::object(), tflops = Value::object(), tgs = Value::array();
  for (const auto& [factor, level] : result.cell->levels) levels.set(factor, level);
  for (const Convention& one : result.tflops) tflops.set(one.name, one.flops);
  for (const double one : result.tgs) tgs.items().push_back(one);
  value.set("cell", result.cell->id), value.set("levels", levels), value.set("state", state_name(result.state));
  value.set("reason", result.reason), value.set("reference", result.cell->is_reference);
  value.set("noise", result.cell->is_noise), value.set("world_size", result.cell->world_size);
  value.set("train_batch_size", result.cell->batch), value.set("seq_length", result.cell->seq_length);
  value.set("planned_bytes", result.cell->planned_bytes), value.set("peak_memory_bytes", result.peak_bytes);
  value.set("tensor_memory_bytes", result.tensor_bytes);
  value.set("peak_memory", peaks_value(result)), value.set("runs_ok", int64_t{result.ok});
  value.set("tgs_padded_runs", tgs), value.set("tgs_padded", summary_value(result.speed));
  value.set("tgs_real", result.tgs_real), value.set("tgs_loss", result.tgs_loss);
  value.set("step_s", summary_value(result.step_s)), value.set("step_s_p10", result.step_p10);
  value.set("step_s_p50", result.step_median), value.set("step_s_p90", result.step_p90),
      value.set("first_five_steps_s", result.first_five_s);
  value.set("samples_per_s", result.samples_per_s.mean);
  value.set("samples_per_s_sd", optional(result.samples_per_s.sd)), value.set("startup_s", result.startup_s);
  const auto measured = [&](double share) { return result.part_shares.empty() ? Value() : Value(share); };
  value.set("part_shares", shares_value(result)),
      value.set("communication_share", measured(result.communication_share));
  value.set("communication_share_most", measured(result.communication_share_most));
  value.set("energy_j", optional(result.energy_j));
  value.set("joules_per_1000_tokens", optional(result.joules_per_1k_tokens)),
      value.set("runs", runs_value(result.cell->runs));
  value.set("stopped_after", result.cell->stopped.repeats > 0 ? Value(result.cell->stopped.repeats) : Value());
  value.set("runs_under_load", runs_value(result.cell->disturbed));
  value.set("wall_s", result.wall_s), value.set("never_steady", result.never_steady);
  value.set("tflops", tflops), value.set("mfu", optional(result.mfu)), value.set("hfu", optional(result.hfu));
  value.set("gate", gate_name(result.gate)), value.set("loss_difference", result.loss_difference);
  value.set("pareto", result.is_pareto), value.set("against_reference", comparison_value(result.against));
  value.set("outcomes", outcomes_value(result, outcomes));
  value.set("reproduce", result.cell->reproduce);
  return value;
}

Value sensitivity_value(const Analysis& analysis) {
  if (!analysis.sensitivity) return {};
  Value value = Value::object(), needed = Value::object();
  for (const double change : {0.01, 0.03, 0.1})
    needed.set(formatted("%g", change), analysis.sensitivity->needed(change));
  value.set("sd", analysis.sensitivity->sd), value.set("n", int64_t{analysis.sensitivity->n});
  value.set("level", analysis.sensitivity->level), value.set("repeats_needed", std::move(needed));
  value.set("shown", analysis.sensitivity->shown());
  return value;
}

void write_file(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished, std::ios::binary);
  if (!(file << text) || !file.flush()) {
    const int reason = errno;
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    throw fail(ErrorCode::io, "study: cannot write ", one_line(path), ": ", std::strerror(reason),
               "\n   make room; `drivetrain study FILE --resume` writes the report again");
  }
  file.close();
  std::filesystem::rename(unfinished, path);
}

}  // namespace

std::string json_text(const StudyRecord& study, const Analysis& analysis) {
  Value cells = Value::array(), ranking = Value::array();
  for (const CellResult& result : analysis.cells) cells.items().push_back(cell_value(result, analysis.outcomes));
  for (const size_t i : analysis.ranking) ranking.items().push_back(analysis.cells[i].cell->id);
  Value value = Value::object();
  value.set("name", study.name), value.set("began", study.began), value.set("environment", study.environment);
  value.set("study", study.study), value.set("noise_floor", optional(analysis.noise_floor));
  value.set("ranked_by", ranked_by(analysis)), value.set("noise_alarm", analysis.noise_alarm);
  value.set("answer", texts(answer_of(study, analysis)));
  value.set("noise", optional(analysis.noise)), value.set("ranking", ranking),
      value.set("in_words", texts(ranking_lines(study, analysis))), value.set("cells", cells);
  value.set("effects", effects_value(analysis.effects)),
      value.set("interactions", effects_value(analysis.interactions));
  value.set("sensitivity", sensitivity_value(analysis));
  value.set("aliasing", study.aliasing), value.set("refused_effects", texts(analysis.refused_effects));
  return printable_json(value.to_json(2)) + "\n";
}

std::string markdown_text(const StudyRecord& study, const Analysis& analysis) {
  std::string text = "# " + study.name + "\n\n" + join(answer_of(study, analysis), " ") + "\n\n" +
                     markdown_of(ranking_table(study, analysis)) + "\n";
  for (const std::string& line : notes_of(study, analysis)) text += "- " + line + "\n";
  text += effects_markdown(study, analysis);
  text += "\n" + repeats_text(study) + " Differences are paired by repeat; p after Holm's correction over all cells. " +
          "TGS: padded tokens per rank and second. " + rule_text(study.warmup) +
          " Peak MB: of the largest rank's process; tensors MB: of it, what the run holds in tensors at most.\n";
  for (const Value::Member& m : study.environment.members())
    text += "- " + m.key + ": " + (m.value.is_string() ? m.value.as_string() : m.value.to_json()) + "\n";
  return printable(text);
}

void write_report(const StudyRecord& study) {
  const Analysis analysis = analysis_of(study);
  std::string why_not;
  const std::vector<Chart> charts = charts_of(study, analysis, why_not);
  write_file(study.folder + "/report.csv", printable(csv_text(analysis)));
  write_file(study.folder + "/runs.csv", printable(runs_csv(study, analysis)));
  write_file(study.folder + "/ranking.tex", printable(latex_of(ranking_table(study, analysis))));
  write_file(study.folder + "/effects.csv", printable(effects_csv(analysis)));
  write_file(study.folder + "/report.json", json_text(study, analysis));
  write_file(study.folder + "/report.md", markdown_text(study, analysis));
  for (const Chart& chart : charts) write_file(study.folder + "/" + chart.name + ".svg", chart.svg);
  write_file(study.folder + "/report.html", html_text(study, analysis, charts, why_not));
}

void write_live_page(const StudyRecord& study) {
  const std::string page = html_text(study, analysis_of(study), {}, "they are drawn when the study ends", true);
  write_file(study.folder + "/report.html", page);
}

}  // namespace drivetrain::study
