#include "study/dispatcher.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/environment.h"
#include "study/host_load.h"
#include "study/interrupts.h"
#include "study/past_runs.h"
#include "study/records.h"

namespace drivetrain::study {
namespace {

constexpr int kMostTries = 3;  // of a run under a load that is not allowed, in one start of the study

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
  // An array job takes all repeats at once, unless what one of them shows decides over the next.
  const bool all_at_once = all_.slurm && study.early_stop.after <= 0 && study.repeats.until <= 0;
  for (auto from = order.begin(); from != order.end();) {
    const int64_t block = from->block;
    const auto to =
        std::find_if(from, order.end(), [&](const Turn& turn) { return turn.block != block && !all_at_once; });
    std::deque<Turn> queue;
    std::remove_copy_if(from, to, std::back_inserter(queue), is_done);
    // Nothing of it has begun: all blocks before it are whole.
    const bool untouched = std::none_of(from, to, [&](const Turn& turn) { return done.contains(run_id(turn)); });
    from = to;
    if (queue.empty()) continue;
    if (untouched && shows_enough(block)) return end_early(block);
    if (untouched) stop_losers(block, order);
    std::erase_if(queue, [&](const Turn& turn) { return is_stopped(turn); });
    all_.slurm ? run_array(std::move(queue)) : run_block(std::move(queue));
    if (told_stop_ || !lost_.empty()) return;
  }
}

void Dispatcher::run_block(std::deque<Turn> queue) {
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
  if (runs_.size() > 1 || !own.hosts.empty()) running->line.set("slot", static_cast<int64_t>(slot) + 1);
  if (runs_.size() > 1 && own.hosts.empty()) running->line.set("cores", own.cores);
  if (!own.hosts.empty()) running->line.set("hosts", own.names);
  if (!own.devices.empty()) running->line.set("devices", own.devices);
  const std::string folder = new_folder(turn);
  Value begin = running->line;
  begin.set("event", "start"), begin.set("time", time_now()), begin.set("folder", folder);
  add(begin);
  all_.progress.begin_run(cell_id(turn), turn.block, slot);
  CellRun run = run_of(turn, folder);
  run.cpus = own.cpus, run.hosts = own.hosts;
  if (meter_.any() && runs_.size() == 1) run.meter = &meter_;  // else it is not one run's energy
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
  if (runs_.size() > 1) {
    Value beside = Value::array();
    for (const auto& [cell, block] : run->beside) {
      Value other = Value::object();
      other.set("cell", all_.design.cells[cell].id), other.set("block", block);
      beside.items().push_back(std::move(other));
    }
    run->line.set("beside", std::move(beside));
  }
  spent_s_ += end.wall_s / static_cast<double>(runs_.size());  // of the study's time
  all_.progress.end_run(end.wall_s, slot);
  settle(run->turn, run->line, end, queue);
}

// What a run gave goes into the ledger. `line`: what the study knows of it; `queue`: where it comes again.
void Dispatcher::settle(const Turn& turn, Value line, const CellEnd& end, std::deque<Turn>& queue) {
  for (const Value::Member& m : end.line.members()) line.set(m.key, m.value);
  line.set("time", time_now());
  if (end.disk_full) return stop_for_disk(std::move(line));
  add(line);
  if (comes_again(turn, line))
    queue.push_back(turn);
  else
    --left_, all_.progress.ended(turn.cell, state_called(line.find("state")->as_string()));
  tell(line, turn, end.wall_s);
  if (all_.after_run) all_.after_run();
  if (all_.design.cells[turn.cell].is_reference && !problem_) try {
      check_has_outcomes(line, all_.study.outcomes, all_.study.path);
    } catch (const Error&) {
      problem_ = std::current_exception();
    }
}

// At the end of its block, when the load may have gone.
bool Dispatcher::comes_again(const Turn& turn, const Value& line) {
  return is_disturbed(line, all_.study.allow_load) && ++tries_[{turn.cell, turn.block}] < kMostTries &&
         !is_over_budget() && !problem_;
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

}  // namespace drivetrain::study
