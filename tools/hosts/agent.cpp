#include "hosts/agent.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <set>
#include <system_error>

#include "cli/usage_error.h"
#include "hosts/examination.h"
#include "hosts/launcher_channel.h"
#include "hosts/meeting.h"
#include "hosts/orders.h"
#include "hosts/visible_devices.h"
#include "launch/attempt.h"
#include "launch/open_files.h"
#include "launch/write_text.h"
#include "schedulers/starter_command.h"
#include "schedulers/task_door.h"

namespace drivetrain::program {
namespace {

constexpr double kOrderMayTakeS = 600;  // the launcher may wait for other hosts meanwhile
constexpr double kLastWordsMayTakeS = 10;

// CLIENT PORT SERVER PORT: the third.
std::string own_address(const std::string& session) {
  const size_t first = session.find(' '), second = session.find(' ', first + 1);
  if (second == std::string::npos) return "";
  return session.substr(second + 1, session.find(' ', second + 1) - second - 1);
}

// Which ranks were told to have ended.
class NotesEnds : public OtherHosts {
 public:
  explicit NotesEnds(LauncherChannel& channel) : channel_(channel) {}
  std::vector<pollfd> fds() const override { return channel_.fds(); }
  bool takes_output() const override { return channel_.takes_output(); }
  News news() override { return channel_.news(); }
  void output(int rank, bool is_error, const std::string& bytes) override { channel_.output(rank, is_error, bytes); }
  void ended(const RankEnd& end) override { channel_.ended(end), ended_.insert(end.rank); }
  void restart_points(const std::string& bytes) override { channel_.restart_points(bytes); }
  void said(const std::string& text) override { channel_.said(text); }
  void flight_record(int rank, const std::string& bytes) override { channel_.flight_record(rank, bytes); }

  bool has_ended(int rank) const { return ended_.count(rank) != 0; }

 private:
  LauncherChannel& channel_;
  std::set<int> ended_;
};

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
  return join_launcher(text.substr(0, blank), DoorSign::of(text.substr(std::min(blank, text.size()))));
}

class Agent {
 public:
  explicit Agent(std::string session) : channel_(std::move(session)) {}

  int run() {
    channel_.send({Message::hello, 0, packed({kAgentProtocol, DRIVETRAIN_RELEASE, own_address(channel_.session())})});
    while (const auto order = channel_.order(kOrderMayTakeS)) {
      try {
        if (examination_.answer(*order)) continue;
        if (order->type == Message::prepare) prepare(PrepareOrder::of(order->text));
        if (order->type == Message::probe) probe(unpacked(order->text));
        if (order->type == Message::config) config_ = config_of_text(order->text, order->rank);
        if (order->type == Message::start) return start(StartOrder::of(order->text));
        if (order->type == Message::signal) return 128 + order->rank;
      } catch (const HostError& e) {
        channel_.send({Message::refuse, e.code, e.what()});
      }
    }
    return channel_.is_lost() ? 0 : 5;
  }

 private:
  void prepare(const PrepareOrder& order) {
    const std::string same = "; it has to be at the same path on every host";
    if (chdir(order.folder.c_str()) != 0)
      throw HostError(2, "the current folder " + order.folder + ": " + std::strerror(errno) + same);
    if (!order.config.empty() && access(order.config.c_str(), R_OK) != 0)
      throw HostError(2, "cannot read the config file " + order.config + ": " + std::strerror(errno) + same);
    for (const std::string& file : order.files)
      if (access(file.c_str(), R_OK) != 0)
        throw HostError(2, "cannot read " + file + ": " + std::strerror(errno) + same);
    if (access(order.program.c_str(), X_OK) != 0)
      throw HostError(2, "cannot run " + order.program + ": " + std::strerror(errno) + same);
    if (!order.run_folder.empty() && access(order.run_folder.c_str(), R_OK | X_OK) != 0)
      throw HostError(8, "the folder of the run, with its checkpoints, is not there: " + order.run_folder + ": " +
                             std::strerror(errno) + "; it has to be on a file system that all hosts share");
    set_variables(order.environment);  // what the slots of this host mean may stand there
    if (!order.is_again) check_slots(order.slots, std::getenv("CUDA_VISIBLE_DEVICES"));
    check_setup(order.setup, static_cast<int>(order.slots.size()));
    if (!order.has_rank_0) return channel_.send({.type = Message::ready});
    meeting_ = open_meeting(order.master_addr, order.master_port, order.peers);
    channel_.send({Message::ready, 0, packed({meeting_.address, std::to_string(meeting_.port)})});
  }

  void probe(const std::vector<std::string>& fields) {
    try_meeting(fields.at(0), std::stoi(fields.at(1)), 5);
    channel_.send({.type = Message::ready});
  }

  int start(const StartOrder& order) {
    const bool for_one = order.only_rank_0 || order.local >= 0;
    const int here = for_one ? 1 : static_cast<int>(order.slots.size());
    LaunchRequest request;
    request.config = std::move(config_);
    request.peers_may_take_s = order.peers_may_take_s, request.sigterm_may_take_s = order.sigterm_may_take_s;
    RanksToStart wanted{.count = order.world, .only_rank_0 = order.only_rank_0, .command = order.command};
    wanted.environment = order.environment;
    if (const std::string devices = devices_of_slots(order.slots, std::getenv("CUDA_VISIBLE_DEVICES"));
        !devices.empty())
      wanted.environment.push_back("CUDA_VISIBLE_DEVICES=" + devices);
    wanted.setup = order.setup;
    wanted.signals_reach_ranks = order.signals_reach_ranks;
    wanted.place = {order.first,
                    order.local >= 0 ? 1 : static_cast<int>(order.slots.size()),
                    std::max(0, order.local),
                    static_cast<int>(order.slots.size()),
                    order.master_addr,
                    order.master_port,
                    fcntl(meeting_.listener.get(), F_DUPFD_CLOEXEC, 3),
                    true,
                    order.token};
    meeting_.listener.close();
    NotesEnds notes(channel_);
    wanted.others = &notes;
    if (const std::string too_few = make_room_for_open_files(here); !too_few.empty())
      notes.said(too_few);
    else
      run_ranks(request, wanted);
    for (int rank = order.first; rank < order.first + here; ++rank)
      if (!notes.has_ended(rank)) notes.ended({rank, 8, false, false, 0, ""});
    channel_.send({.type = Message::bye});
    channel_.flush(kLastWordsMayTakeS);
    // MPICH's mpirun kills all tasks when one leaves whose rank has not ended MPI in order; ranks of others may be at
    // work. The launcher hangs up once all have said this, and the channel is lost with it or with the network.
    while (order.local >= 0 && !channel_.is_lost()) channel_.order(kLastWordsMayTakeS);
    return 0;
  }

  static void run_ranks(const LaunchRequest& request, const RanksToStart& wanted) {
    SignalWatch signals;
    Attempt(request, wanted, signals).run();
  }

  LauncherChannel channel_;
  Examination examination_{channel_};
  Meeting meeting_;
  ConfigDocument config_;
};

}  // namespace

int agent() try {
  if (isatty(STDIN_FILENO) && !std::getenv(kTaskVariable))
    throw UsageError("agent: `drivetrain launch` starts it over ssh and talks to it; there is nothing to type");
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a rank leaves behind becomes a child of ours, to be ended
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGHUP, SIG_IGN);  // the connection's end is seen on the channel
  return Agent(session()).run();
} catch (const UsageError&) {
  throw;
} catch (const std::exception& e) {
  write_text(STDERR_FILENO, std::string("drivetrain: error: agent: ") + e.what() + "\n");
  return 5;
}

}  // namespace drivetrain::program
