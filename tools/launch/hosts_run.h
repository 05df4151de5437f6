// One start of all ranks of a run, as its launcher sees it: agents start and watch the ranks, on this host or others;
// here is known who they all are, who failed first, and whose words go where.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent.h"
#include "launch/attempt_end.h"
#include "launch/brought_records.h"
#include "launch/host_connection.h"
#include "launch/outlet.h"
#include "launch/rank_lines.h"
#include "launch/request.h"
#include "launch/signal_watch.h"
#include "launch/starter_process.h"
#include "launch/task_listener.h"

namespace drivetrain::program {

struct HostsToRun {
  std::vector<Host> hosts;
  // It is this one alone, with the agent in this process. Other launchers start the other ranks if there are more.
  bool is_here = false;
  int first = 0, world = 1;  // RANK of the first rank of `hosts`; how many the run has
  bool only_rank_0 = false;  // the others would do nothing
  std::vector<std::string> command = {};
  std::vector<std::string> environment = {};
  std::string begun_folder = {};  // as in StartOrder
  std::string run_folder = {};    // that has to be on every host; "": any
  std::string master_addr = {};   // where rank 0 listens; "": by route
  int master_port = 0;            // 0: a free one
  RankSetup setup = {};
  bool is_again = false;  // others were before it: hosts that cannot take part may be replaced
};

class HostsRun {
 public:
  // All of it outlives this.
  HostsRun(const LaunchRequest& request, const HostsToRun& wanted, SignalWatch& signals, Outlets& outlets);
  ~HostsRun() { signals_.around_stops({}); }
  HostsRun(const HostsRun&) = delete;
  HostsRun& operator=(const HostsRun&) = delete;
  // Once. Throws HostError if this host cannot take part in a run of its own.
  AttemptEnd run();

 private:
  struct Member {
    std::unique_ptr<HostConnection> connection;
    int first = 0, count = 0;  // its ranks that are started
    int local = -1;            // LOCAL_RANK of its one rank, where each rank has an agent of its own
    bool greeted = false, answered = false, said_bye = false, lost = false;
    std::string address;  // of it, as the launcher reached it
    std::string answer, problem;
    int problem_code = 0;  // 0: none
    std::string lost_by;   // why, of one that is lost
  };

  int connect();
  void connect_own_agent();
  // Where mpirun or srun starts the agents (connect_tasks.cpp). They return 0, or the code to end with.
  int connect_tasks();
  int gather_tasks(TaskListener& listener, int wanted, std::vector<Task>& tasks);
  int take_task(Task task, int wanted, std::vector<Task>& tasks);
  int fail_to_start(int code, const std::string& text);
  void end_starter();
  int prepare();
  StartOrder start_order() const;
  void start();
  RankLines lines_of(const Member& member, int rank);
  void watch();
  AttemptEnd could_not_start(int code) const;

  // Waits until every host that was `asked` has answered or has a problem; what does not is a problem. Returns 0, or
  // the code to end with, after it was said.
  int all_answer(const std::function<bool(const Member&)>& done, double within_s, const std::string& what);
  int report_problems() const;
  void turn(double most_s);
  void receive(Member& member, double passed_s);
  void turn_outlets();
  void take(Member& member, const Message& message);
  void greet(Member& member, const Message& message);
  void note_problem(Member& member, int code, const std::string& text);
  void note_no_connection(Member& member);
  void note_end(Member& member, RankEnd end);
  void lose(Member& member, const std::string& reason);
  void on_signal(int number);
  void note_start_problem(const Member& member, const Message& message);
  RankLines& rank(int number) { return ranks_[static_cast<size_t>(number - wanted_.first)]; }
  bool fails() const;
  void stand_still(bool stops);
  bool all_ended() const;
  bool all_said_bye() const;
  AttemptEnd report();
  void take_flight_record(const Member& from, const Message& message);
  void tell_of_flight_records(bool failed);

  using Clock = std::chrono::steady_clock;
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void say(const std::string& text) const;

  const LaunchRequest& request_;
  const HostsToRun& wanted_;
  SignalWatch& signals_;
  Outlets& outlets_;
  bool reminded_ = false;                                        // a signal came after SIGUSR1
  bool is_paused_ = false;                                       // ranks have to wait with what they write
  Clock::time_point begin_ = Clock::now(), suspended_ = begin_;  // see Attempt
  double last_turn_ = 0;
  std::vector<Member> members_;
  std::vector<RankLines> ranks_;
  std::vector<RankEnd> ends_;
  RestartPoints points_;
  double flight_asked_at_ = -kNever;
  BroughtRecords flight_{[this](const std::string& text) { say(text); }};
  bool started_ = false;
  double failed_at_ = kNever, all_ended_at_ = kNever;
  int signal_ = 0;
  std::string master_addr_;
  int master_port_ = 0;
  std::optional<Agent> own_agent_;           // where it is in this process
  std::string start_problem_;                // a rank of this host could not be started
  std::unique_ptr<StarterProcess> starter_;  // null: ssh
  std::string token_;                        // that it gave to the agents
};

}  // namespace drivetrain::program
