// Runs as tasks of array jobs: submitted together, and taken up from their folders as they end. A study that was killed
// meanwhile takes up what its jobs have done since, and waits for what is still in the queue.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/dispatcher.h"
#include "study/environment.h"
#include "study/interrupts.h"
#include "study/past_runs.h"
#include "study/study_task.h"

namespace drivetrain::study {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookEvery = std::chrono::milliseconds(500);
constexpr size_t kMostTasks = 1000;  // of one array job: SLURM's MaxArraySize is 1001 unless a site says another
// From SLURM's word that a task is over to the point where its line is missed: a file system that hosts share may show
// a new file late.
constexpr auto kShownAfter = std::chrono::seconds(60), kNothingAfter = std::chrono::seconds(5);

std::string last_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  return last;
}

// SLURM's own limits end a run as the study's do; what else it ends comes again with --resume.
CellEnd end_by_slurm(const std::string& state, const std::string& name) {
  const bool time = state == "TIMEOUT", memory = state == "OUT_OF_MEMORY";
  CellEnd end{Value::object(), 0};
  end.line.set("state", state_name(time ? State::timeout : memory ? State::oom : State::skipped));
  end.line.set("reason", concat("SLURM ended task ", name, ": ", state)), end.line.set("step_s", Value::array());
  return end;
}

}  // namespace

void Dispatcher::run_array(std::deque<Turn> queue) {
  std::vector<Turn> turns;
  for (const Turn& turn : queue) all_.plans[turn.cell].refusal.empty() ? turns.push_back(turn) : refuse(turn);
  adopt(turns);
  std::deque<Turn> again;
  for (bool is_cancelled = false, is_ended = false; !tasks_.empty() || !turns.empty();) {
    if (!problem_ && Interrupts::count() == 0 && !turns.empty()) submit(std::exchange(turns, {}));
    collect(again);
    if (!problem_ && Interrupts::count() == 0) turns.insert(turns.end(), again.begin(), again.end()), again.clear();
    std::set<std::string> jobs;
    for (const Task& task : tasks_) jobs.insert(task.place.job);
    if ((problem_ || Interrupts::count() > 0) && !std::exchange(is_cancelled, true))
      for (const std::string& job : jobs) all_.slurm->cancel_waiting(job);
    if (Interrupts::count() > 1 && !std::exchange(is_ended, true))
      for (const std::string& job : jobs) all_.slurm->cancel(job);
    if (is_cancelled && tasks_.empty()) break;
    if (!tasks_.empty()) std::this_thread::sleep_for(kLookEvery);
  }
  if (problem_) std::rethrow_exception(problem_);
  if (Interrupts::count() > 0) {
    if (!std::exchange(told_stop_, left_ > 0)) tell_stop();
    return;
  }
  if (lost_.empty()) return;
  for (size_t i = 0; i < std::min<size_t>(lost_.size(), 10); ++i) say(lost_[i]);
  if (lost_.size() > 10) say(concat("and ", lost_.size() - 10, " further tasks"));
  say(concat(lost_.size(), lost_.size() == 1 ? " task" : " tasks",
             " of SLURM ended without a result; all others are in the ledger. --resume submits those again"));
}

// Tasks of an earlier start that have no end in the ledger.
void Dispatcher::adopt(std::vector<Turn>& turns) {
  std::map<std::string, const Value*> open;
  for (const Value& line : all_.lines) {
    if (is_event(line, "start") && line.find("job")) open[line.find("run")->as_string()] = &line;
    if (is_event(line, "end")) open.erase(line.find("run")->as_string());
  }
  std::erase_if(turns, [&](const Turn& turn) {
    const auto start = open.find(run_id(turn));
    if (start == open.end()) return false;
    const Value& line = *start->second;
    tasks_.push_back({turn,
                      line_of(turn),
                      line.find("folder")->as_string(),
                      {line.find("job")->as_string(), line.find("task")->as_int(), line.find("output")->as_string()},
                      true,
                      {}});
    tasks_.back().line.set("job", tasks_.back().place.name());
    return true;
  });
  if (!tasks_.empty()) say(concat("takes up ", tasks_.size(), " tasks that an earlier start has submitted"));
}

void Dispatcher::submit(const std::vector<Turn>& turns) try {
  for (size_t from = 0; from < turns.size(); from += kMostTasks) {
    const size_t to = std::min(from + kMostTasks, turns.size());
    std::vector<CellRun> runs;
    for (size_t i = from; i < to; ++i) runs.push_back(run_of(turns[i], new_folder(turns[i])));
    const std::vector<SlurmTask> places = all_.slurm->submit(runs);
    for (size_t i = from; i < to; ++i) {
      const SlurmTask& place = places[i - from];
      Task task{turns[i], line_of(turns[i]), runs[i - from].folder, place, false, {}};
      Value begin = task.line;
      begin.set("event", "start"), begin.set("time", time_now()), begin.set("folder", task.folder);
      begin.set("job", place.job), begin.set("task", place.index), begin.set("output", place.output);
      add(begin);
      task.line.set("job", place.name());
      tasks_.push_back(std::move(task));
    }
    say(concat("SLURM job ", places.front().job, ": ", places.size(), places.size() == 1 ? " task" : " tasks"));
  }
} catch (const Error&) {
  problem_ = std::current_exception();  // what is submitted is waited for
}

void Dispatcher::collect(std::deque<Turn>& again) {
  std::erase_if(tasks_, [&](Task& task) { return collected(task, again); });
}

bool Dispatcher::collected(Task& task, std::deque<Turn>& again) {
  std::optional<CellEnd> end = task_end(task.folder);
  if (!end) {
    const std::optional<std::string> state = all_.slurm->end_of(task.place);
    if (!state) return false;
    if (!task.over_since) task.over_since = Clock::now();
    const bool should_be_there = *state == "COMPLETED" || (*state == "gone" && !task.adopted);
    if (Clock::now() - *task.over_since < (should_be_there ? kShownAfter : kNothingAfter)) return false;
    end = end_by_slurm(*state, task.place.name());
    end->line.set("folder", task.folder);
    const bool comes_again = task.adopted && end->line.find("state")->as_string() == state_name(State::skipped);
    if (comes_again && !problem_ && Interrupts::count() == 0) {
      again.push_back(task.turn);  // what an earlier start has lost needs no further --resume
      return true;
    }
    if (problem_ || Interrupts::count() > 0) return true;  // it is left, and comes with --resume
    if (end->line.find("state")->as_string() == state_name(State::skipped)) tell_lost(task, *state);
  }
  settle(task.turn, task.line, *end, again);
  return true;
}

void Dispatcher::tell_lost(const Task& task, const std::string& state) {
  const std::string said = last_line_of(task.place.output);
  lost_.push_back(concat(cell_id(task.turn), "  repeat ", task.turn.block + 1, ": task ", task.place.name(),
                         state == "gone" ? " is not in SLURM's queue any more" : " ended as " + state,
                         state == "COMPLETED"
                             ? ", and its line is not in " + task.folder + ": do the cluster's hosts see this folder?"
                             : std::string(),
                         said.empty() ? "" : "; the last line that it printed: " + said));
}

}  // namespace drivetrain::study
