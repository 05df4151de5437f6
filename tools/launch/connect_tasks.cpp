// The beginning of a run whose agents mpirun or srun starts, one for each rank: they come to the launcher instead of
// being called by it. From there on it is a run of agents as over ssh.
#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/rank_variables.h"
#include "cli/error_line.h"
#include "launch/hosts_run.h"
#include "launch/starter_command.h"
#include "launch/starter_process.h"
#include "launch/task_listener.h"
#include "launch/this_host.h"

namespace drivetrain::program {
namespace {

// The hosts on which tasks are, in the order of their first ranks.
std::vector<std::string> hosts_of_tasks(const std::vector<Task>& tasks) {
  std::vector<std::string> names;
  for (const Task& task : tasks)
    if (std::find(names.begin(), names.end(), task.host) == names.end()) names.push_back(task.host);
  return names;
}

int count_on(const std::vector<Task>& tasks, const std::string& host) {
  return static_cast<int>(std::count_if(tasks.begin(), tasks.end(), [&](const Task& t) { return t.host == host; }));
}

bool has_chosen_slots(const std::vector<Host>& hosts) {
  return std::any_of(hosts.begin(), hosts.end(), [](const Host& host) {
    for (size_t i = 0; i < host.slots.size(); ++i)
      if (host.slots[i] != static_cast<int>(i)) return true;
    return false;
  });
}

std::string ranks_that_miss(const std::vector<Task>& tasks, int wanted) {
  std::string text;
  int count = 0;
  for (int rank = 0; rank < wanted; ++rank) {
    if (std::any_of(tasks.begin(), tasks.end(), [&](const Task& task) { return task.rank == rank; })) continue;
    if (++count <= 4) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return (count == 1 ? "rank " : "ranks ") + text + (count > 4 ? " and others" : "");
}

// Of each host its slots. "": as asked; else how the starter has spread the tasks.
std::string take_slots(const std::vector<Task>& tasks, const std::vector<Host>& asked,
                       std::map<std::string, std::vector<int>>& slots) {
  const std::vector<std::string> names = hosts_of_tasks(tasks);
  for (const std::string& name : names)
    for (int i = 0; i < count_on(tasks, name); ++i) slots[name].push_back(i);
  if (!has_chosen_slots(asked)) return "";
  bool fits = names.size() == asked.size();
  std::string spread;
  for (size_t i = 0; i < names.size(); ++i) {
    spread += (spread.empty() ? "" : ", ") + std::to_string(slots[names[i]].size()) + " on " + names[i];
    fits = fits && slots[names[i]].size() == asked[i].slots.size();
    if (fits) slots[names[i]] = asked[i].slots;
  }
  return fits ? "" : spread;
}

}  // namespace

int HostsRun::fail_to_start(int code, const std::string& text) {
  starter_->end(0);
  outlets_.err.put(cli::error_line("launch: " + text, outlets_.err.fd()));
  return code;
}

void HostsRun::end_starter() {
  constexpr double kMayTakeS = 5;  // its tasks are gone
  if (starter_) starter_->end(kMayTakeS);
}

int HostsRun::take_task(Task task, int wanted, std::vector<Task>& tasks) {
  if (task.size != wanted || task.rank < 0 || task.rank >= wanted)
    return fail_to_start(2, request_.hosts.starter_program + " started " + std::to_string(task.size) +
                                " tasks instead of " + std::to_string(wanted) +
                                "; leave the number of tasks and hosts out of --launcher_args");
  if (std::none_of(tasks.begin(), tasks.end(), [&](const Task& other) { return other.rank == task.rank; }))
    tasks.push_back(std::move(task));
  return 0;
}

int HostsRun::gather_tasks(TaskListener& listener, int wanted, std::vector<Task>& tasks) {
  const double end = now() + request_.hosts.tasks_may_take_s;
  while (tasks.size() < static_cast<size_t>(wanted)) {
    std::vector<pollfd> fds = listener.fds();
    fds.push_back({signals_.fd(), POLLIN, 0});
    fds.push_back({starter_->fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), 250);
    const bool over = starter_->has_ended();
    starter_->pass();
    for (Task& task : listener.let_in(now()))
      if (const int code = take_task(std::move(task), wanted, tasks)) return code;
    if (const int signal = signals_.next();
        signal != 0 && signal != SIGUSR2) {  // SIGUSR2 asks ranks, and there are none
      starter_->keep_back(), starter_->end(0);
      say("stopped by signal " + std::to_string(signal) + " before any rank was started");
      return 128 + (signal == SIGHUP ? SIGTERM : signal);
    }
    if (tasks.size() == static_cast<size_t>(wanted)) break;
    const std::string missing = ranks_that_miss(tasks, wanted) + " of " + std::to_string(wanted) + " did not come";
    if (over) return fail_to_start(5, missing + ": " + starter_->reason() + "; no rank was started");
    if (now() > end)
      return fail_to_start(5, missing + " within " + seconds_text(request_.hosts.tasks_may_take_s) + ": " +
                                  request_.hosts.starter_program +
                                  " has not started them, or their hosts do not reach this one" +
                                  starter_->last_words() + "; no rank was started");
  }
  std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.rank < b.rank; });
  return 0;
}

int HostsRun::connect_tasks() {
  const HostsRequest& hosts = request_.hosts;
  const int wanted = wanted_.only_rank_0 ? 1 : wanted_.world;
  token_ = new_run_token();
  TaskListener listener(is_only_this_host(hosts.hosts));
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  starter_ = std::make_unique<StarterProcess>(
      starter_command(hosts, wanted, {program, "agent"}),
      std::vector<std::string>{kTaskVariable + ("=" + hosts.starter + " " + listener.sign().text()),
                               RankStart::kToken + ("=" + token_)},
      signals_.mask_before(), outlets_.err);
  std::vector<Task> tasks;
  if (const int code = gather_tasks(listener, wanted, tasks)) return code;
  std::map<std::string, std::vector<int>> slots;
  const std::vector<Host> asked = wanted_.only_rank_0 ? std::vector<Host>() : hosts.hosts;
  if (const std::string spread = take_slots(tasks, asked, slots); !spread.empty())
    return fail_to_start(2, "the slots that --include or --exclude choose need as many ranks on each host, in order: " +
                                hosts.starter_program + " started " + spread +
                                "; leave placement out of --launcher_args");
  std::map<std::string, int> next_on;
  for (Task& task : tasks) {
    Member member;
    member.first = task.rank, member.count = 1, member.local = next_on[task.host]++;
    const Host host{task.host, slots[task.host]};
    member.connection = std::make_unique<HostConnection>(host, std::move(task.socket), outlets_.err);
    members_.push_back(std::move(member));
  }
  return 0;
}

}  // namespace drivetrain::program
