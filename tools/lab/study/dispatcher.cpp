#include "study/dispatcher.h"

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/analysis.h"
#include "study/early_stop.h"
#include "study/environment.h"
#include "study/host_load.h"
#include "study/interrupts.h"
#include "study/measure.h"
#include "study/past_runs.h"
#include "study/records.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

constexpr int kMostTries = 3;  // of a run under a load that is not allowed, in one start of the study

std::set<std::string> metrics_of(const StudyFile& study) {
  std::set<std::string> names;
  for (const Outcome& outcome : study.outcomes) names.insert(outcome.metric);
  return names;
}

}  // namespace

struct Dispatcher::Running {
  Turn turn;
  Value line;
  std::set<std::pair<size_t, int64_t>> beside;  // cell and block, of runs that overlapped with it
  std::unique_ptr<CellProcess> process;
};

Dispatcher::Dispatcher(Dispatched all) : all_(std::move(all)), runs_(all_.slots.size()) {}
Dispatcher::~Dispatcher() = default;

void Dispatcher::add(const Value& line) {
  all_.ledger.add(line);
  all_.lines.push_back(line);
}

std::string Dispatcher::run_id(const Turn& turn) const {
  return run_id_of(all_.plans[turn.cell].config, cell_id(turn), all_.study.seed, turn.block, all_.build);
}

void Dispatcher::run() {
  const StudyFile& study = all_.study;
  const std::vector<Turn> order = order_of(all_.design.cells.size(), study.repeats.most, study.seed);
  const std::map<std::string, State> done = ended_runs(all_.lines, study.allow_load);
  if (study.early_stop.after > 0) stopped_ = stopped_cells(all_.lines);
  const auto is_done = [&](const Turn& turn) { return done.contains(run_id(turn)) || is_stopped(turn); };
  left_ = static_cast<int64_t>(std::count_if(order.begin(), order.end(), [&](const Turn& t) { return !is_done(t); }));
  all_.progress.begin_study(all_.design.cells.size(), static_cast<int64_t>(order.size()), study.repeats.until > 0);
  for (const Turn& turn : order)
    if (const auto end = done.find(run_id(turn)); end != done.end())
      all_.progress.ended(turn.cell, end->second);
    else if (is_stopped(turn))
      all_.progress.spare(1);
  if (!done.empty())
    say(concat("goes on: ", order.size() - static_cast<size_t>(left_), " of ", at_most(), order.size(),
               " runs are done"));
  for (auto from = order.begin(); from != order.end();) {
    const int64_t block = from->block;
    const auto to = std::find_if(from, order.end(), [&](const Turn& turn) { return turn.block != block; });
    std::deque<Turn> queue;
    std::remove_copy_if(from, to, std::back_inserter(queue), is_done);
    // Nothing of it has begun: all blocks before it are whole.
    const bool untouched = std::none_of(from, to, [&](const Turn& turn) { return done.contains(run_id(turn)); });
    from = to;
    if (queue.empty()) continue;
    if (untouched && shows_enough(block)) return end_early(block);
    if (untouched) stop_losers(block, order);
    std::erase_if(queue, [&](const Turn& turn) { return is_stopped(turn); });
    run_block(std::move(queue));
    if (told_stop_) return;
  }
}

void Dispatcher::run_block(std::deque<Turn> queue) {
  tries_.clear();
  const auto busy = [&] {
    return std::any_of(runs_.begin(), runs_.end(), [](const auto& run) { return run != nullptr; });
  };
  while (!queue.empty() || busy()) {
    while (!queue.empty() && is_startable()) {
      const Turn turn = queue.front();
      queue.pop_front();
      if (!all_.plans[turn.cell].refusal.empty())
        refuse(turn);
      else if (is_over_budget())
        skip(turn);
      else
        start(turn, static_cast<size_t>(std::find(runs_.begin(), runs_.end(), nullptr) - runs_.begin()));
    }
    if (!busy() && (problem_ || Interrupts::count() > 0)) break;
    look(queue);
    if (busy()) std::this_thread::sleep_for(kPollEvery);
  }
  if (problem_) std::rethrow_exception(problem_);
  if (Interrupts::count() > 0 && !std::exchange(told_stop_, left_ > 0)) tell_stop();
}

bool Dispatcher::is_startable() const {
  return !problem_ && Interrupts::count() == 0 && std::find(runs_.begin(), runs_.end(), nullptr) != runs_.end();
}

void Dispatcher::tell_stop() {
  if (left_ > 0)
    say(concat("stopped by signal ", Interrupts::last(), " with ", at_most(), left_, " runs left; --resume goes on"));
}

void Dispatcher::start(const Turn& turn, size_t slot) {
  auto running = std::make_unique<Running>();
  running->turn = turn, running->line = line_of(turn);
  const Slot& own = all_.slots[slot];
  if (runs_.size() > 1)
    running->line.set("slot", static_cast<int64_t>(slot) + 1), running->line.set("cores", own.cores);
  if (!own.devices.empty()) running->line.set("devices", own.devices);
  const std::string folder = new_folder(turn);
  Value begin = running->line;
  begin.set("event", "start"), begin.set("time", time_now()), begin.set("folder", folder);
  add(begin);
  all_.progress.begin_run(cell_id(turn), turn.block, slot);
  CellRun run{.plan = &all_.plans[turn.cell],
              .program = all_.program,
              .base = all_.base,
              .folder = folder,
              .timeout_s = all_.study.timeout_s,
              .memory_limit = all_.study.memory_limit,
              .seed = seed_of(turn),
              .figures = metrics_of(all_.study),
              .meter = meter_.any() && runs_.size() == 1 ? &meter_ : nullptr,  // else it is not one run's energy
              .cpus = own.cpus};
  if (!own.devices.empty()) run.environment.push_back("CUDA_VISIBLE_DEVICES=" + own.devices);
  running->process = std::make_unique<CellProcess>(run);
  for (const auto& other : runs_)
    if (other)
      other->beside.insert({turn.cell, turn.block}), running->beside.insert({other->turn.cell, other->turn.block});
  runs_[slot] = std::move(running);
}

void Dispatcher::look(std::deque<Turn>& queue) {
  for (size_t slot = 0; slot < runs_.size(); ++slot) {
    if (!runs_[slot]) continue;
    const std::optional<CellEnd> end = runs_[slot]->process->poll();
    if (end)
      ended(slot, *end, queue);
    else
      all_.progress.tick(runs_[slot]->process->now_s(), runs_[slot]->process->steps(), slot);
  }
}

void Dispatcher::ended(size_t slot, const CellEnd& end, std::deque<Turn>& queue) {
  const std::unique_ptr<Running> run = std::move(runs_[slot]);
  Value line = run->line;
  for (const Value::Member& m : end.line.members()) line.set(m.key, m.value);
  if (runs_.size() > 1) {
    Value beside = Value::array();
    for (const auto& [cell, block] : run->beside) {
      Value other = Value::object();
      other.set("cell", all_.design.cells[cell].id), other.set("block", block);
      beside.items().push_back(std::move(other));
    }
    line.set("beside", std::move(beside));
  }
  line.set("time", time_now());
  if (end.disk_full) return stop_for_disk(std::move(line));
  add(line);
  spent_s_ += end.wall_s / static_cast<double>(runs_.size());  // of the study's time
  all_.progress.end_run(end.wall_s, slot);
  if (comes_again(run->turn, line))
    queue.push_back(run->turn);
  else
    --left_, all_.progress.ended(run->turn.cell, state_called(line.find("state")->as_string()));
  tell(line, run->turn, end.wall_s);
  if (all_.design.cells[run->turn.cell].is_reference && !problem_) try {
      check_has_outcomes(line, all_.study.outcomes, all_.study.path);
    } catch (const Error&) {
      problem_ = std::current_exception();
    }
}

// At the end of its block, when the load may have gone.
bool Dispatcher::comes_again(const Turn& turn, const Value& line) {
  return is_disturbed(line, all_.study.allow_load) && ++tries_[turn.cell] < kMostTries && !is_over_budget() &&
         !problem_;
}

void Dispatcher::stop_for_disk(Value line) {
  const std::string reason = line.find("reason")->as_string();
  line.set("state", state_name(State::skipped));
  try {
    add(line);
    throw fail(ErrorCode::io, "study: the disk is full: ", reason,
               "\n   make room and go on with `drivetrain study FILE --resume`: that run comes again");
  } catch (const Error&) {
    if (!problem_) problem_ = std::current_exception();
  }
}

// By the A/A pair's own repeats, which do not know what the other cells have shown.
bool Dispatcher::shows_enough(int64_t blocks) {
  const Repeats& repeats = all_.study.repeats;
  if (repeats.until <= 0 || blocks < repeats.least) return false;
  const std::string& folder = all_.study.output_dir;
  const StudyRecord record = records_of(read_ledger(folder), folder);
  const Analysis analysis = analysis_of(record);
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

void Dispatcher::tell(const Value& line, const Turn& turn, double wall_s) {
  const Warmup& warmup = all_.study.warmup;
  const std::string state = line.find("state")->as_string();
  std::string text = concat("[", at_most(), all_.progress.left(), " left, ", all_.progress.time_left(), "]  ");
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
