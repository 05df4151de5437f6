// What a dispatcher writes into the ledger and says, and the rules that look at what stands there.
#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/analysis.h"
#include "study/dispatcher.h"
#include "study/early_stop.h"
#include "study/environment.h"
#include "study/host_load.h"
#include "study/measure.h"
#include "study/past_runs.h"
#include "study/records.h"
#include "study/report.h"

namespace drivetrain::study {

namespace fs = std::filesystem;

// By the A/A pair's own repeats, which do not know what the other cells have shown.
bool Dispatcher::shows_enough(int64_t blocks) {
  const Repeats& repeats = all_.study.repeats;
  if (repeats.until <= 0 || blocks < repeats.least) return false;
  const std::string& folder = all_.study.output_dir;
  const StudyRecord record = records_of(read_ledger(folder), folder);
  const Analysis analysis = analysis_of(record);
  if (analysis.is_one_run) {
    say("repeats of a cell are the same to the last digit, and further ones would be, too: \"seed_per_repeat\": true "
        "gives each a seed of its own");
    return true;
  }
  if (!analysis.sensitivity || analysis.sensitivity->n < repeats.least) return false;
  const double shown = analysis.sensitivity->surely_shown();
  if (shown > repeats.until) return false;
  say(
      formatted("%d repeats are enough: by the A/A pair, also if it varies more than it did so far, they show "
                "differences of %.2g %% and more; %g %% was asked for",
                analysis.sensitivity->n, 100 * shown, 100 * repeats.until));
  return true;
}

// Looks at whole blocks; what it decides stands in the ledger.
void Dispatcher::stop_losers(int64_t blocks, const std::vector<Turn>& order) {
  const EarlyStop& rule = all_.study.early_stop;
  if (rule.after <= 0 || blocks < rule.after) return;
  std::vector<std::string> competing;
  for (const Cell& cell : all_.design.cells)
    if (!cell.is_noise && !stopped_.contains(cell.id)) competing.push_back(cell.id);
  const StudyRecord record = records_of(read_ledger(all_.study.output_dir), all_.study.output_dir);
  const int64_t rivals = static_cast<int64_t>(all_.design.cells.size()) - all_.study.noise_cell - 1;
  for (const StoppedCell& one :
       cells_to_stop(analysis_of(record), competing, rule.level, rivals, all_.study.repeats.most - rule.after)) {
    Value line = Value::object();
    line.set("event", "stopped"), line.set("cell", one.cell), line.set("repeats", blocks), line.set("rival", one.rival);
    line.set("pairs", int64_t{one.pairs}), line.set("change", one.change), line.set("p", one.p);
    line.set("level", one.level), line.set("ratio", one.scale == Scale::ratio), line.set("time", time_now());
    add(line);
    stopped_.insert(one.cell);
    const int64_t spared = std::count_if(order.begin(), order.end(), [&](const Turn& turn) {
      return turn.block >= blocks && cell_id(turn) == one.cell;
    });
    left_ -= spared, all_.progress.spare(spared);
    say(concat(one.cell, " stops after ", blocks, " repeats: it cannot win against ", one.rival, " (",
               change_text(one.change, one.scale), formatted(", p = %.2g)", one.p)));
  }
}

void Dispatcher::end_early(int64_t blocks) {
  left_ = 0;
  if (is_event(all_.lines.back(), "enough")) return;  // an earlier start has told it
  Value line = Value::object();
  line.set("event", "enough"), line.set("repeats", blocks), line.set("time", time_now());
  add(line);
}

Value Dispatcher::line_of(const Turn& turn) const {
  Value line = Value::object();
  line.set("event", "end"), line.set("run", run_id(turn)), line.set("cell", cell_id(turn));
  line.set("block", turn.block);
  return line;
}

void Dispatcher::refuse(const Turn& turn) {
  Value line = line_of(turn);
  line.set("state", state_name(State::refused)), line.set("reason", all_.plans[turn.cell].refusal);
  add(line);
  --left_, all_.progress.ended(turn.cell, State::refused);
  if (turn.block == 0) say(cell_id(turn) + "  refused: " + first_line(all_.plans[turn.cell].refusal));
}

void Dispatcher::skip(const Turn& turn) {
  if (!told_budget_)
    say(concat("the budget of ", all_.study.budget_s, " s is spent: ", left_, " runs are skipped; --resume runs them"));
  told_budget_ = true;
  Value line = line_of(turn);
  line.set("state", state_name(State::skipped)), line.set("reason", "the budget was spent");
  add(line);
  --left_, all_.progress.ended(turn.cell, State::skipped);
}

// A folder that no run had: one that was killed leaves its own behind.
std::string Dispatcher::new_folder(const Turn& turn) const {
  const std::string base = concat(all_.study.output_dir, "/runs/", cell_id(turn), "/", turn.block + 1);
  std::string folder = base;
  for (int again = 2; fs::exists(folder); ++again) folder = concat(base, ".", again);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw fail(ErrorCode::io, "study: cannot create ", one_line(folder), ": ", error.message());
  return folder;
}

std::optional<int64_t> Dispatcher::seed_of(const Turn& turn) const {
  const StudyFile& study = all_.study;
  return study.seed_per_repeat ? std::optional(static_cast<int64_t>(study.seed) + turn.block) : std::nullopt;
}

CellRun Dispatcher::run_of(const Turn& turn, const std::string& folder) const {
  std::set<std::string> figures;
  for (const Outcome& outcome : all_.study.outcomes) figures.insert(outcome.metric);
  return {.plan = &all_.plans[turn.cell],
          .program = all_.program,
          .base = all_.base,
          .folder = folder,
          .timeout_s = all_.study.timeout_s,
          .memory_limit = all_.study.memory_limit,
          .seed = seed_of(turn),
          .figures = figures};
}

void Dispatcher::tell(const Value& line, const Turn& turn, double wall_s) {
  const Warmup& warmup = all_.study.warmup;
  const std::string state = line.find("state")->as_string();
  const std::string time_left = all_.progress.time_left();
  std::string text =
      concat("[", at_most(), all_.progress.left(), " left", time_left.empty() ? "" : ", ", time_left, "]  ");
  text += cell_id(turn) + concat("  repeat ", turn.block + 1, "  ", state);
  std::vector<double> steps;
  for (const Value& step : line.find("step_s")->items()) steps.push_back(step.as_double());
  const Window window = steady_window(steps, warmup);
  if (state == "ok" && !steps.empty())
    text += formatted("  %.4g ms per step", 1e3 * run_figure({steps.begin() + static_cast<std::ptrdiff_t>(window.first),
                                                              steps.begin() + static_cast<std::ptrdiff_t>(window.last)},
                                                             warmup));
  else if (const Value* const reason = line.find("reason"))
    text += "  " + first_line(reason->as_string());
  text += formatted("  (%.1f s)", wall_s);
  if (is_disturbed(line, all_.study.allow_load))
    text += formatted("  under load: others took %.0f %% of the host's CPU time, \"allow_load\" is %.0f %%",
                      100 * host_load_in(line)->taken(), 100 * all_.study.allow_load);
  say(text);
}

}  // namespace drivetrain::study
