#include "launch/launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <system_error>

#include "hosts/dry_run.h"
#include "hosts/hosts_run.h"
#include "hosts/meeting.h"
#include "hosts/visible_devices.h"
#include "launch/attempt.h"
#include "launch/fewer_ranks.h"
#include "launch/line_relay.h"
#include "launch/open_files.h"
#include "launch/report.h"
#include "launch/restart_count.h"
#include "launch/slots.h"
#include "schedulers/batch_script.h"
#include "schedulers/rank_of_starter.h"

namespace drivetrain::program {
namespace {

constexpr const char* kBegunFolder = "DRIVETRAIN_BEGUN_FOLDER";

// The number of a closed stdin must not go to a socket or a pipe.
void open_standard_descriptors() {
  int fd = 0;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

std::string ranks_text(int count) { return std::to_string(count) + (count == 1 ? " rank" : " ranks"); }

// Where each host's launch is started by somebody else: the ranks of this one.
Place own_place(const HostsRequest& hosts) {
  Place place;
  if (hosts.hosts.empty()) return place;
  const auto own = static_cast<size_t>(hosts.node_rank);
  const std::vector<Host> before(hosts.hosts.begin(), hosts.hosts.begin() + hosts.node_rank);
  const bool alone = hosts.hosts.size() == 1;
  if (alone && hosts.master_addr.empty() && hosts.master_port == 0) return place;
  place.first = ranks_of(before), place.here = static_cast<int>(hosts.hosts[own].slots.size());
  place.master_addr = hosts.master_addr, place.master_port = hosts.master_port;
  place.listens = alone;  // others may be started earlier
  if (alone) place.token = new_run_token();
  if (own != 0) return place;
  Meeting meeting = open_meeting(hosts.master_addr, hosts.master_port, {});
  place.master_addr = meeting.address, place.master_port = meeting.port;
  place.listener = fcntl(meeting.listener.get(), F_DUPFD_CLOEXEC, 3);
  return place;
}

// Variables that all ranks of this host get, and the GPUs that they see.
void set_environment(const HostsRequest& hosts) {
  for (const std::string& entry : hosts.environment)
    setenv(entry.substr(0, entry.find('=')).c_str(), entry.c_str() + entry.find('=') + 1, 1);
  if (hosts.hosts.empty()) return;
  const std::vector<int>& slots = hosts.hosts[static_cast<size_t>(hosts.node_rank)].slots;
  if (const std::string devices = devices_of_slots(slots, std::getenv("CUDA_VISIBLE_DEVICES")); !devices.empty())
    setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1);
}

// The attempts of a run, one after the other.
class Restarting {
 public:
  explicit Restarting(const LaunchRequest& request)
      : request_(request), ranks_(request.ranks), slots_(std::max(request.ranks, request.most_ranks)) {}

  int run() {
    for (;;) {
      const AttemptEnd end = attempt();
      if (!end.failure || end.signal != 0 || request_.max_restarts == 0) return end.code;
      if (end.restart_point) point_ = end.restart_point;
      if (!may_pass(*end.failure, point_.has_value())) return no_restart(end);
      if (end.run_is_done) {
        say("the run was done before that: there is nothing to start again");
        return 0;
      }
      count_.failed({end.cause, end.code, slots_.of_rank(end.failure->rank)}, end.has_new_checkpoint);
      if (count_.same_slot_again() && may_shrink_)
        if (const int signal = leave_out(end.failure->rank)) return code_of(signal);
      if (count_.used_up()) return give_up();
      say("restart " + number_text() + "in " + seconds_text(count_.pause_s()) + ", " + where_from());
      if (const int signal = signals_.next_within(count_.pause_s())) return code_of(signal);
    }
  }

 private:
  AttemptEnd attempt() {
    RanksToStart wanted{.count = ranks_, .only_rank_0 = request_.only_rank_0, .command = request_.command};
    if (const std::string resume = resume_word(); !resume.empty())
      wanted.command.insert(wanted.command.end(), {"--resume", resume});
    wanted.environment = slots_.environment(ranks_, std::getenv("CUDA_VISIBLE_DEVICES"));
    if (point_ && point_->tag.empty()) wanted.environment.push_back(kBegunFolder + ("=" + point_->output_dir));
    wanted.ask_restart_points = request_.max_restarts > 0;
    wanted.out = request_.out, wanted.err = request_.err;
    wanted.place = own_place(request_.hosts);
    return Attempt(request_, wanted, signals_).run();
  }

  // Until the run has begun, as the user said. One that began with an old tag has newer ones of another past beside it.
  std::string resume_word() const {
    const bool by_tag = !request_.resume.empty() && request_.resume != "auto" && request_.resume != "never";
    if (!point_ || (by_tag && point_->tag.empty())) return request_.resume;
    return by_tag ? point_->tag : "auto";
  }

  std::string number_text() const {
    if (count_.number() == 0) return "";
    return std::to_string(count_.number()) + " of " + std::to_string(request_.max_restarts) + " ";
  }

  std::string where_from() const {
    if (!point_) return "as the first time, for the run had not begun";
    if (point_->tag.empty()) return "from the beginning, for there is no checkpoint yet";
    return "from checkpoint " + point_->tag;
  }

  // Fewer ranks, or other places for them. Returns the signal that ended it, or 0.
  int leave_out(int rank) {
    const std::string failed = "rank " + std::to_string(rank) + " failed twice in a row without a newer checkpoint";
    const int most = std::min(ranks_, slots_.count() - 1);
    FewerRanks found;
    if (most == ranks_)
      found.ranks = ranks_;  // there are more places than ranks
    else
      found = fewer_ranks(ranks_, most, request_.least_ranks,
                          [&](int ranks) { return ask_plan(request_, ranks, signals_); });
    if (found.signal != 0) return found.signal;
    if (found.ranks == 0) {
      may_shrink_ = false;  // nor will it be
      say(failed + ", and the run cannot go on with fewer than " + ranks_text(ranks_) + ": " +
          (found.refused.empty() ? "--elastic allows no fewer" : found.refused));
      return 0;
    }
    slots_.leave_out(slots_.of_rank(rank));
    say(failed + ": goes on with " + ranks_text(found.ranks) +
        (found.ranks == ranks_ ? " in other places" : " instead of " + std::to_string(ranks_)) +
        (found.refused.empty() ? "" : "; " + found.refused));
    ranks_ = found.ranks;
    count_.begin_anew();
    return 0;
  }

  int no_restart(const AttemptEnd& end) const {
    const bool asked = end.code == 75 || end.code > 128;  // killed otherwise, it would be started again
    say("no restart: " + end.cause + (asked ? "; it was asked to end" : "; it would fail again") +
        (count_.number() > 0 ? "; the failure before it: " + count_.last().cause : ""));
    return end.code;
  }

  int give_up() const {
    const bool same = count_.first().cause == count_.last().cause;
    say("gives up after " + std::to_string(count_.done()) + (count_.done() == 1 ? " restart" : " restarts") +
        " without a newer checkpoint; the first failure was " + count_.first().cause +
        (same ? ", and so was the last" : "; the last " + count_.last().cause));
    return count_.first().code;
  }

  // Between two attempts nothing runs that would have to end first.
  int code_of(int signal) const {
    const bool has_checkpoint = point_ && !point_->tag.empty();
    say("stopped by signal " + std::to_string(signal) + " before the restart; " +
        (has_checkpoint ? "the same command goes on from checkpoint " + point_->tag
         : point_       ? "there is no checkpoint to go on from"
                        : "the run had not begun"));
    const bool requeue = signal != SIGINT && has_checkpoint;
    return requeue ? 75 : 128 + (signal == SIGHUP ? SIGTERM : signal);
  }

  void say(const std::string& text) const { launcher_says(request_.err, text); }

  const LaunchRequest& request_;
  SignalWatch signals_;
  int ranks_;
  Slots slots_;
  bool may_shrink_ = request_.least_ranks > 0;
  RestartCount count_{request_.max_restarts, request_.first_pause_s, request_.longest_pause_s};
  std::optional<RestartPoint> point_;  // once the run has begun
};

}  // namespace

int launch(const LaunchRequest& request) try {
  if (!request.hosts.said.empty()) launcher_says(request.err, request.hosts.said);
  if (request.hosts.dry_run) {
    write_text(request.out, dry_run_text(request));
    return 0;
  }
  if (!request.hosts.started_by.empty()) return become_rank_of_starter(request);
  if (!request.hosts.submit.empty()) {
    write_text(request.out, submit(request.hosts.script, request.hosts.submit) + "\n");
    return 0;
  }
  const std::string too_few = make_room_for_open_files(request.ranks);
  if (!too_few.empty()) {
    write_text(request.err, "drivetrain: error: " + too_few + "\n");
    return 8;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a rank leaves behind becomes a child of ours, to be ended
  signal(SIGPIPE, SIG_IGN);
  open_standard_descriptors();
  unsetenv(kBegunFolder);  // of another launch
  if (request.hosts.over_ssh) return HostsRun(request).run();
  set_environment(request.hosts);
  return Restarting(request).run();
} catch (const HostError& e) {
  write_text(request.err, std::string("drivetrain: error: launch: this host: ") + e.what() + "\n");
  return e.code;
} catch (const std::system_error& e) {
  write_text(request.err, std::string("drivetrain: error: ") + e.what() + "\n");
  return 8;
}

}  // namespace drivetrain::program
