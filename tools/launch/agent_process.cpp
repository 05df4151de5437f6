// `drivetrain agent`.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "cli/usage_error.h"
#include "launch/agent.h"
#include "launch/starter_command.h"
#include "launch/task_listener.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

constexpr auto kOrderMayTake = std::chrono::minutes(10);  // the launcher may wait for other hosts meanwhile

// The ends of the connection to the launcher: ssh's, or one that is made now, as a task of mpirun or srun.
std::string session() {
  const char* const ssh = std::getenv("SSH_CONNECTION");
  const char* const door = std::getenv(kTaskVariable);
  if (!door) return ssh ? ssh : "";
  const std::string text = door;
  unsetenv(kTaskVariable);
  // A scheduler's signals reach the ranks by themselves, and mpirun's are the launcher's affair.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) signal(number, SIG_IGN);
  const size_t blank = text.find(' ');
  return join_launcher(text.substr(0, blank), ListenerAddress::of(text.substr(std::min(blank, text.size()))));
}

void wait_for_any(std::vector<pollfd> fds, double seconds) {
  poll(fds.data(), fds.size(), std::max(0, static_cast<int>(seconds * 1000) + 1));
}

int serve(Agent& agent) {
  for (; !agent.is_to_start(); agent.turn()) {
    if (agent.end_signal() != 0) return 128 + agent.end_signal();
    if (agent.is_lost()) return 0;
    if (std::chrono::steady_clock::now() - agent.last_order() > kOrderMayTake) return 5;
    wait_for_any(agent.fds(), agent.wait_s());
  }
  SignalWatch signals;
  signals.around_stops([&agent](bool stops) { agent.stand_still(stops); });
  for (agent.start(signals); !agent.is_done(); agent.turn()) {
    std::vector<pollfd> fds = agent.fds();
    fds.push_back({signals.fd(), POLLIN, 0});
    wait_for_any(std::move(fds), agent.wait_s());
    while (const int number = signals.next()) agent.on_own_signal(number);
  }
  agent.leave();
  return 0;
}

}  // namespace

int agent() try {
  if (isatty(STDIN_FILENO) && !std::getenv(kTaskVariable))
    throw UsageError("agent: `drivetrain launch` starts it over ssh and talks to it; there is nothing to type");
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a rank leaves behind becomes a child of ours, to be ended
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGHUP, SIG_IGN);  // the connection's end is seen on the channel
  Agent agent(LauncherChannel::of_standard_streams(session()));
  return serve(agent);
} catch (const UsageError&) {
  throw;
} catch (const std::exception& e) {
  write_text(STDERR_FILENO, std::string("drivetrain: error: agent: ") + e.what() + "\n");
  return 5;
}

}  // namespace drivetrain::program
