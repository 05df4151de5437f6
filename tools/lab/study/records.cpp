#include "study/records.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "study/cell_plan.h"
#include "study/measure.h"
#include "study/past_runs.h"

namespace drivetrain::study {
namespace {

const Value& need(const Value& line, const char* key) {
  const Value* const value = line.find(key);
  if (!value) throw fail(ErrorCode::io, "the ledger has a line without \"", key, "\": ", line.to_json());
  return *value;
}

double number(const Value& line, const char* key) {
  const Value* const value = line.find(key);
  return value && value->is_number() ? value->as_double() : 0;
}
int64_t whole(const Value& line, const char* key) { return static_cast<int64_t>(number(line, key)); }

std::string text(const Value& line, const char* key) {
  const Value* const value = line.find(key);
  return value && value->is_string() ? value->as_string() : "";
}

std::vector<double> numbers(const Value& line, const char* key) {
  std::vector<double> list;
  if (const Value* const values = line.find(key))
    for (const Value& value : values->items()) list.push_back(value.is_number() ? value.as_double() : 0);
  return list;
}

Value model_of(const CellPlan& plan) {
  const Value* const model = plan.plan.find("model");
  return model ? *model : Value::object();
}

bool is_gated(const Value& resolved) {
  const Value* const model = resolved.find("model");
  const Value* const params = model ? model->find("params") : nullptr;
  return params && text(*params, "activation").ends_with("glu");
}

// The kind's plugin in the plan says whether anything runs again; which share, its option of that name, if it computes
// whole blocks again.
Value recompute_of(const CellPlan& plan) {
  Value recompute = Value::object();
  bool on = false;
  if (const Value* const plugins = plan.plan.find("plugins"))
    for (const Value& plugin : plugins->items())
      if (const std::string id = text(plugin, "id"); id.starts_with("recompute/") && id != "recompute/none")
        on = plugin.find("enabled") && plugin.find("enabled")->as_bool();
  recompute.set("on", on);
  if (!on) return recompute;
  const Value* const section = plan.resolved.find("activation_checkpointing");
  const Value* const params = section ? section->find("params") : nullptr;
  const Value* const fraction = params ? params->find("fraction") : nullptr;
  const bool whole_blocks = params && !params->find("regions");
  recompute.set("fraction", !whole_blocks ? -1.0 : fraction && fraction->is_number() ? fraction->as_double() : 1.0);
  return recompute;
}

CellRecord cell_of(const Value& line) {
  CellRecord cell;
  cell.id = need(line, "cell").as_string();
  for (const Value::Member& m : need(line, "levels").members()) cell.levels.emplace_back(m.key, m.value.as_string());
  cell.is_reference = need(line, "reference").as_bool(), cell.is_noise = need(line, "noise").as_bool();
  cell.world_size = whole(line, "world_size"), cell.batch = whole(line, "train_batch_size");
  cell.seq_length = whole(line, "seq_length"), cell.planned_bytes = number(line, "planned_bytes");
  const Value* const launch = line.find("launch");
  if (const Value* const sets = launch ? launch->find("sets") : nullptr)
    for (const Value& one : sets->items()) cell.sets.push_back(one.as_string());
  cell.refusal = text(line, "refusal"), cell.reproduce = text(line, "reproduce");
  const Value& model = need(line, "model");
  cell.shape = {whole(model, "num_layers"),
                whole(model, "hidden_size"),
                whole(model, "num_attention_heads"),
                whole(model, "num_query_groups"),
                whole(model, "head_dim"),
                whole(model, "ffn_hidden_size"),
                whole(model, "vocab_size"),
                cell.seq_length,
                number(model, "parameters"),
                false};
  cell.shape.gated = need(line, "gated").as_bool();
  // A ledger from before windows has the two summands alone.
  const Value* flops = model.find("flops_per_token");
  cell.model_flops = flops ? flops->as_double()
                           : number(model, "flops_per_token_fixed") +
                                 number(model, "flops_per_token_S") * static_cast<double>(cell.seq_length);
  cell.recomputes = need(need(line, "recompute"), "on").as_bool();
  cell.recomputed_fraction = number(need(line, "recompute"), "fraction");
  return cell;
}

std::map<std::string, Series> figures_in(const Value& line) {
  std::map<std::string, Series> figures;
  const Value* const all = line.find("figures");
  if (!all) return figures;
  for (const Value::Member& m : all->members()) {
    Series& series = figures[m.key];
    for (const Value& step : need(m.value, "step").items()) series.step.push_back(step.as_double());
    for (const Value& one : need(m.value, "value").items())
      series.value.push_back(one.is_number() ? one.as_double() : std::nan(""));
  }
  return figures;
}

// A figure that the study did not ask for when a run ended stands in the run's folder, while that is there.
void add_outcomes(const std::vector<Outcome>& outcomes, RunRecord& run) {
  std::set<std::string> missing;
  for (const Outcome& outcome : outcomes)
    if (!run.figures.contains(outcome.metric)) missing.insert(outcome.metric);
  if (missing.empty() || run.state != State::ok) return;
  Value line = Value::object();
  if (const Value figures = figures_of(run.folder + "/run", missing);
      const Value* const found = figures.find("figures"))
    line.set("figures", *found);
  run.figures.merge(figures_in(line));
}

RunRecord run_of(const Value& line) {
  RunRecord run;
  run.id = need(line, "run").as_string(), run.folder = text(line, "folder");
  run.block = whole(line, "block"), run.state = state_called(need(line, "state").as_string());
  run.reason = text(line, "reason"), run.wall_s = number(line, "wall_s"), run.startup_s = number(line, "startup_s");
  run.step_s = numbers(line, "step_s"), run.loss = numbers(line, "loss"), run.tokens = numbers(line, "tokens");
  run.padding = numbers(line, "padding"), run.ended = text(line, "time"), run.end = line;
  run.figures = figures_in(line), run.load = host_load_in(line);
  if (const Value* const seed = line.find("seed")) run.seed = seed->as_int();
  run.slot = whole(line, "slot"), run.cores = text(line, "cores"), run.hosts = text(line, "hosts");
  if (const Value* const beside = line.find("beside"))
    for (const Value& other : beside->items())
      run.beside.emplace_back(need(other, "cell").as_string(), need(other, "block").as_int());
  return run;
}

// A later end of the same block replaces an earlier one, which was skipped. `began`: of each run, its last start.
void put(std::vector<CellRecord>& cells, const std::map<std::string, std::string>& began, const Value& line,
         double allow_load) {
  const std::string& id = need(line, "cell").as_string();
  const auto cell = std::find_if(cells.begin(), cells.end(), [&](const CellRecord& c) { return c.id == id; });
  if (cell == cells.end()) throw fail(ErrorCode::io, "the ledger has a run of a cell that it does not know: ", id);
  RunRecord run = run_of(line);
  if (const auto start = began.find(run.id); start != began.end()) run.began = start->second;
  if (is_disturbed(line, allow_load)) return cell->disturbed.push_back(std::move(run));
  std::erase_if(cell->runs, [&](const RunRecord& other) { return other.block == run.block; });
  cell->runs.push_back(std::move(run));
  std::sort(cell->runs.begin(), cell->runs.end(), [](const auto& a, const auto& b) { return a.block < b.block; });
}

void put_stop(std::vector<CellRecord>& cells, const Value& line) {
  for (CellRecord& cell : cells)
    if (cell.id == need(line, "cell").as_string())
      cell.stopped = {whole(line, "repeats"), text(line, "rival"),           number(line, "change"),
                      number(line, "p"),      need(line, "ratio").as_bool(), whole(line, "looked_at")};
}

// Of a study that grew: in the order of its cells, whenever they came.
void put_in_order(const Value& ids, std::vector<CellRecord>& cells) {
  const auto place = [&](const CellRecord& cell) {
    const auto& list = ids.items();
    return std::find_if(list.begin(), list.end(), [&](const Value& id) { return id.as_string() == cell.id; }) -
           list.begin();
  };
  std::stable_sort(cells.begin(), cells.end(),
                   [&](const CellRecord& a, const CellRecord& b) { return place(a) < place(b); });
}

}  // namespace

void choose_outcomes(StudyRecord& study, const std::vector<Outcome>& outcomes) {
  study.outcomes = outcomes;
  for (CellRecord& cell : study.cells)
    for (RunRecord& run : cell.runs) add_outcomes(outcomes, run);
}

void choose_reference(StudyRecord& study, const std::string& cell) {
  std::vector<std::string> ids;
  for (const CellRecord& one : study.cells)
    if (!one.is_noise) ids.push_back(one.id);
  if (std::find(ids.begin(), ids.end(), cell) == ids.end())
    throw fail(ErrorCode::config, "study report: there is no cell ", shown(cell), suggestion(cell, ids));
  // The A/A pair is the old reference's: beside another one it is a cell like others.
  for (CellRecord& one : study.cells) {
    if (one.is_noise && !study.cells.empty())
      one.is_noise = std::any_of(study.cells.begin(), study.cells.end(),
                                 [&](const CellRecord& other) { return other.is_reference && other.id == cell; });
  }
  for (CellRecord& one : study.cells) one.is_reference = one.id == cell;
}

void check_has_outcomes(const Value& end, const std::vector<Outcome>& outcomes, const std::string& path) {
  RunRecord run = run_of(end);
  if (run.state != State::ok) return;
  add_outcomes(outcomes, run);
  for (const Outcome& outcome : outcomes) {
    const bool equal = outcome.at == Outcome::At::equal_tokens || outcome.at == Outcome::At::equal_seconds;
    Outcome at_end = outcome;
    if (equal) at_end.at = Outcome::At::last;  // where it is compared depends on the other runs
    const Found found = found_in({&run.figures, &run.tokens, &run.step_s}, at_end);
    if (!found.absent) continue;
    const std::vector<std::string> names = metric_names(run.folder + "/run");
    throw fail(
        ErrorCode::config, path, ": the outcome ", shown(outcome.name()),
        " is not in the reference's run: ", found.missing,
        run.figures.contains(outcome.metric) ? "" : suggestion(outcome.metric, names),
        "\n   correct \"outcome\" and go on with `drivetrain study FILE --grow`: what has run is kept; where the "
        "run lacks it, begin anew with a base that reports it (\"eval_interval\" for valid_loss)");
  }
}

Value cell_line(const Cell& cell, const CellPlan& plan, const StudyFile& study, const std::string& reproduce) {
  Value line = Value::object(), levels = Value::object();
  for (size_t f = 0; f < cell.levels.size(); ++f) {
    const int level = cell.levels[f] >= 0 ? cell.levels[f] : study.reference[f];
    levels.set(study.factors[f].name, study.factors[f].levels[static_cast<size_t>(level)].name);
  }
  line.set("event", "cell"), line.set("cell", cell.id), line.set("levels", std::move(levels));
  line.set("reference", cell.is_reference), line.set("noise", cell.is_noise);
  line.set("world_size", plan.world_size), line.set("train_batch_size", plan.batch("train_batch_size"));
  line.set("seq_length", plan.seq_length()), line.set("planned_bytes", plan.planned_bytes());
  line.set("model", model_of(plan)), line.set("gated", is_gated(plan.resolved));
  line.set("recompute", recompute_of(plan)), line.set("refusal", plan.refusal), line.set("reproduce", reproduce);
  line.set("launch", launch_value(plan)), line.set("config", plan.config);
  return line;
}

StudyRecord records_of(const std::vector<Value>& lines, const std::string& folder) {
  if (lines.empty() || text(lines.front(), "event") != "study")
    throw fail(ErrorCode::io, one_line(folder), "/ledger.jsonl is empty, or was not begun by `drivetrain study`",
               "\n   take the folder away and begin the study again, or name another one");
  StudyRecord record;
  const Value& head = last_head(lines);
  record.folder = folder, record.name = text(head, "name"), record.build = text(head, "build");
  record.began = text(lines.front(), "time"), record.study = need(head, "study"),
  record.environment = need(head, "environment");
  record.gate = number(head, "gate"), record.peak_tflops = number(head, "peak_tflops");
  record.trim = number(head, "trim"), record.allow_load = number(head, "allow_load");
  record.stop_level = number(head, "stop_level");
  if (const Value* const outcome = head.find("outcome")) record.outcomes = outcomes_of(*outcome);
  record.repeats = whole(head, "repeats"), record.until = number(head, "until"),
  record.aliasing = text(head, "aliasing");
  const Value& warmup = need(head, "warmup");
  record.warmup = {whole(warmup, "steps"),      need(warmup, "steady").as_bool(), whole(warmup, "window"),
                   number(warmup, "tolerance"), whole(warmup, "only_first"),      0.5};
  if (const Value* const quantile = warmup.find("quantile")) record.warmup.quantile = quantile->as_double();
  std::map<std::string, std::string> began;
  for (const Value& line : lines) {
    const std::string event = text(line, "event");
    if (event == "start") began[text(line, "run")] = text(line, "time");
    if (event == "cell") record.cells.push_back(cell_of(line));
    if (event == "grown") record.enough = 0;
    if (event == "enough") record.enough = whole(line, "repeats");
    if (event == "stopped" && record.stop_level > 0) put_stop(record.cells, line);
    if (event == "end") put(record.cells, began, line, record.allow_load);
  }
  choose_outcomes(record, record.outcomes);
  if (const Value* const cells = head.find("cells")) put_in_order(*cells, record.cells);
  return record;
}

}  // namespace drivetrain::study
