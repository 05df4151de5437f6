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

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::no_difference:
      return "no difference shown";
    default:
      return "untested";
  }
}

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

Value comparison_value(const Comparison& c) {
  Value value = Value::object();
  value.set("n", int64_t{c.n}), value.set("change", c.change), value.set("verdict", verdict_name(c.verdict));
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

Value runs_value(const CellResult& result) {
  Value list = Value::array();
  for (const RunRecord& run : result.cell->runs) {
    Value value = Value::object();
    value.set("run", run.id), value.set("repeat", run.block + 1), value.set("state", state_name(run.state));
    value.set("began", run.began), value.set("ended", run.ended), value.set("wall_s", run.wall_s);
    value.set("folder", run.folder), value.set("reason", run.reason);
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

Value cell_value(const CellResult& result) {
  Value value = Value::object(), levels = Value::object(), tflops = Value::object(), tgs = Value::array();
  for (const auto& [factor, level] : result.cell->levels) levels.set(factor, level);
  for (const Convention& one : result.tflops) tflops.set(one.name, one.flops);
  for (const double one : result.tgs) tgs.items().push_back(one);
  value.set("cell", result.cell->id), value.set("levels", levels), value.set("state", state_name(result.state));
  value.set("reason", result.reason), value.set("reference", result.cell->is_reference);
  value.set("noise", result.cell->is_noise), value.set("world_size", result.cell->world_size);
  value.set("train_batch_size", result.cell->batch), value.set("seq_length", result.cell->seq_length);
  value.set("planned_bytes", result.cell->planned_bytes), value.set("peak_memory_bytes", result.peak_bytes);
  value.set("peak_memory", peaks_value(result)), value.set("runs_ok", int64_t{result.ok});
  value.set("tgs_padded_runs", tgs), value.set("tgs_padded", summary_value(result.speed));
  value.set("tgs_real", result.tgs_real), value.set("tgs_loss", result.tgs_loss);
  value.set("step_s", summary_value(result.step_s)), value.set("step_s_p10", result.step_p10);
  value.set("step_s_p50", result.step_median), value.set("step_s_p90", result.step_p90),
      value.set("first_five_steps_s", result.first_five_s);
  value.set("samples_per_s", result.samples_per_s), value.set("startup_s", result.startup_s);
  const auto measured = [&](double share) { return result.part_shares.empty() ? Value() : Value(share); };
  value.set("part_shares", shares_value(result)),
      value.set("communication_share", measured(result.communication_share));
  value.set("communication_share_most", measured(result.communication_share_most));
  value.set("energy_j", optional(result.energy_j));
  value.set("joules_per_1000_tokens", optional(result.joules_per_1k_tokens)), value.set("runs", runs_value(result));
  value.set("wall_s", result.wall_s), value.set("never_steady", result.never_steady);
  value.set("tflops", tflops), value.set("mfu", optional(result.mfu)), value.set("hfu", optional(result.hfu));
  value.set("gate", gate_name(result.gate)), value.set("loss_difference", result.loss_difference);
  value.set("pareto", result.is_pareto), value.set("against_reference", comparison_value(result.against));
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

std::string csv_text(const Analysis& analysis) {
  std::string text =
      "cell,state,ranks,n,tgs_padded,tgs_low,tgs_high,tgs_real,tgs_loss,step_s_median,cv,change,change_low,"
      "change_high,p_holm,verdict,gate,peak_memory_bytes,planned_bytes,startup_s,communication_share,"
      "joules_per_1000_tokens,mfu,hfu,pareto,reproduce\n";
  const auto number = [](const std::optional<double>& value) {
    return value ? formatted("%.9g", *value) : std::string();
  };
  for (const CellResult& r : analysis.cells) {
    const bool ok = r.ok > 0, has_interval = ok && r.speed.confidence;
    const std::vector<std::string> fields = {r.cell->id,
                                             state_name(r.state),
                                             concat(r.cell->world_size),
                                             concat(r.ok),
                                             ok ? formatted("%.9g", r.speed.mean) : "",
                                             has_interval ? formatted("%.9g", r.speed.confidence->low) : "",
                                             has_interval ? formatted("%.9g", r.speed.confidence->high) : "",
                                             ok ? formatted("%.9g", r.tgs_real) : "",
                                             ok ? formatted("%.9g", r.tgs_loss) : "",
                                             ok ? formatted("%.9g", r.step_median) : "",
                                             number(r.speed.cv),
                                             r.against.n > 0 ? formatted("%.9g", r.against.change) : "",
                                             r.against.interval ? formatted("%.9g", r.against.interval->low) : "",
                                             r.against.interval ? formatted("%.9g", r.against.interval->high) : "",
                                             number(r.against.paired_holm),
                                             verdict_name(r.against.verdict),
                                             gate_name(r.gate),
                                             ok ? formatted("%.0f", r.peak_bytes) : "",
                                             formatted("%.0f", r.cell->planned_bytes),
                                             ok ? formatted("%.3f", r.startup_s) : "",
                                             r.part_shares.empty() ? "" : formatted("%.6f", r.communication_share),
                                             number(r.joules_per_1k_tokens),
                                             number(r.mfu),
                                             number(r.hfu),
                                             r.is_pareto ? "yes" : "no",
                                             r.cell->reproduce};
    for (size_t i = 0; i < fields.size(); ++i) text += (i > 0 ? "," : "") + csv_field(fields[i]);
    text += "\n";
  }
  return text;
}

std::string json_text(const StudyRecord& study, const Analysis& analysis) {
  Value cells = Value::array(), ranking = Value::array();
  for (const CellResult& result : analysis.cells) cells.items().push_back(cell_value(result));
  for (const size_t i : analysis.ranking) ranking.items().push_back(analysis.cells[i].cell->id);
  Value value = Value::object();
  value.set("name", study.name), value.set("began", study.began), value.set("environment", study.environment);
  value.set("study", study.study), value.set("noise_floor", optional(analysis.noise_floor));
  value.set("ranking", ranking), value.set("in_words", texts(ranking_lines(study, analysis))),
      value.set("cells", cells);
  value.set("effects", effects_value(analysis.effects)),
      value.set("interactions", effects_value(analysis.interactions));
  value.set("sensitivity", sensitivity_value(analysis));
  value.set("aliasing", study.aliasing), value.set("refused_effects", texts(analysis.refused_effects));
  return printable_json(value.to_json(2)) + "\n";
}

std::string markdown_text(const StudyRecord& study, const Analysis& analysis) {
  const auto cell_text = [](std::string text) {
    for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
    return text;
  };
  std::string text = "# " + study.name + "\n\n";
  for (const std::string& line : ranking_lines(study, analysis))
    text += (line[0] >= '0' && line[0] <= '9' ? "" : "- ") + line + "\n";
  text +=
      "\n| cell | state | n | TGS | 95 % interval | against the reference | peak memory MB |\n| --- | --- | --- | --- "
      "| --- | --- | --- |\n";
  for (const CellResult& r : analysis.cells) {
    text += "| " + cell_text(label_of(*r.cell, study)) + " | " + cell_text(state_text(r)) + concat(" | ", r.ok, " | ");
    if (r.ok == 0) {
      text += "| | | |\n";
      continue;
    }
    text += speed_text(r.speed.mean) + " | ";
    if (r.speed.confidence) text += speed_text(r.speed.confidence->low) + " to " + speed_text(r.speed.confidence->high);
    text += " | ";
    text += r.cell->is_reference ? "reference | "
                                 : percent(r.against.change) + ", " + verdict_name(r.against.verdict) + " | ";
    text += formatted("%.1f |\n", r.peak_bytes / 1e6);
  }
  text += effects_markdown(study, analysis);
  text += "\nTGS: padded tokens per rank and second. " + rule_text(study.warmup) + "\n";
  for (const Value::Member& m : study.environment.members())
    text += "- " + m.key + ": " + (m.value.is_string() ? m.value.as_string() : m.value.to_json()) + "\n";
  return printable(text);
}

void write_report(const StudyRecord& study) {
  const Analysis analysis = analysis_of(study);
  std::string why_not;
  const std::vector<Chart> charts = charts_of(study, analysis, why_not);
  write_file(study.folder + "/report.csv", printable(csv_text(analysis)));
  write_file(study.folder + "/effects.csv", printable(effects_csv(analysis)));
  write_file(study.folder + "/report.json", json_text(study, analysis));
  write_file(study.folder + "/report.md", markdown_text(study, analysis));
  for (const Chart& chart : charts) write_file(study.folder + "/" + chart.name + ".svg", chart.svg);
  write_file(study.folder + "/report.html", html_text(study, analysis, charts, why_not));
}

}  // namespace drivetrain::study
