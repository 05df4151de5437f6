// What the agents of several hosts tell for `drivetrain doctor --hostfile`: what doctor says of each host, its clock,
// and which of the others it reaches.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "launch/doctor/clocks.h"
#include "launch/host_connection.h"
#include "launch/host_problem.h"

namespace drivetrain::program {

struct SurveyRequest {
  HostsRequest hosts;                // which, and how ssh reaches them
  std::vector<std::string> command;  // that doctor's part on a host is; its output is JSON
  double hello_may_take_s = 30;      // from ssh's start to the agent's first word
  double answer_may_take_s = 15;
  double doctor_may_take_s = 180;  // of the command; libraries may come over a slow file system
};

// Of one host.
struct HostReport {
  std::string name;
  std::string address;  // as this host has reached it; "": it was not
  std::optional<ClockOffset> clock;
  std::string listens_at;  // for other hosts; "": it did not
  int port = 0;
  Value doctor;                            // what it said; null: nothing
  std::vector<HostProblem> problems = {};  // beside what doctor said
};

struct PairReport {
  size_t from = 0, to = 0;  // of the hosts
  std::string problem;      // "Connection timed out"; "": reached
  double took_s = 0;
};

struct SurveyReport {
  std::vector<HostReport> hosts;
  std::vector<PairReport> pairs;  // of hosts that both could be asked
};

// Of all hosts at once. One that fails is left out of what follows, and the others go on. Nothing is left on any host.
// Throws std::system_error if there can be no ssh.
class Survey {
 public:
  explicit Survey(const SurveyRequest& request) : request_(request) {}
  SurveyReport run();

 private:
  struct Member {
    std::unique_ptr<HostConnection> connection;
    HostReport report = {};
    bool greeted = false, waits = false, is_out = false;
    int64_t sent_ns = 0;
    std::vector<ClockSample> clocks = {};
  };
  using Order = std::function<std::optional<Message>(Member&)>;  // nothing: this one is not asked
  using Answer = std::function<void(Member&, const std::string&)>;

  void connect();
  void measure_clocks();
  void listen();
  void reach();
  void examine();

  // Sends each member its order and waits until all have answered. Who does not is out of the survey, with `what`.
  void ask(const Order& order, const Answer& answer, double within_s, const std::string& what);
  void wait(double within_s, const std::string& what, const Answer& answer);
  void turn(double most_s, const Answer& answer);
  void take(Member& member, const Message& message, const Answer& answer);
  void note(Member& member, const HostProblem& problem);
  void leave_out(Member& member, const HostProblem& problem);

  const SurveyRequest& request_;
  Outlet errors_{STDERR_FILENO};
  std::vector<Member> members_;
  std::vector<PairReport> pairs_;
};

}  // namespace drivetrain::program
