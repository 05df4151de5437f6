#include "launch/attempt.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <system_error>

#include "launch/meeting.h"
#include "launch/open_files.h"

namespace drivetrain::program {
namespace {

constexpr double kOwnSignalMayTakeS = 1.5;

std::vector<RankState> ranks_of(const StartOrder& order) {
  std::vector<RankState> list(static_cast<size_t>(order.count()));
  for (size_t i = 0; i < list.size(); ++i) list[i].number = order.first + static_cast<int>(i);
  return list;
}

}  // namespace

Attempt::Attempt(const StartOrder& order, const ConfigDocument& config, SignalWatch& signals, LauncherChannel& launcher)
    : order_(order),
      config_(config),
      signals_(signals),
      launcher_(launcher),
      ranks_(ranks_of(order)),
      late_(order, ranks_, launcher),
      stop_others_(order.deadlines, ranks_, ends_, late_, launcher) {}

Attempt::~Attempt() {
  signal_ranks(ranks_, SIGKILL);
  while (any_running()) reap(true);
  end_children();
}

void Attempt::start(Descriptor listener) try {
  if (const std::string too_few = make_room_for_open_files(order_.count()); !too_few.empty())
    return launcher_.send({Message::refuse, 8, too_few});
  start_ranks(order_, config_, std::move(listener), signals_.mask_before(), launcher_, ranks_, started_);
} catch (const HostError& e) {
  could_not_start(e.code, e.what());
} catch (const std::system_error& e) {
  could_not_start(8, e.what());
}

void Attempt::could_not_start(int code, const std::string& reason) {
  const auto first = std::find_if(ranks_.begin(), ranks_.end(), [](const RankState& rank) { return rank.pid < 0; });
  const std::string name = first == ranks_.end() ? "a rank" : first->name();
  launcher_.send({Message::refuse, code, name + " could not be started: " + reason});
  kill_all();
}

void Attempt::kill_all() {
  insisted_ = true;
  signal_ranks(ranks_, SIGKILL);
}

void Attempt::finish() {
  end_children();  // what left a rank's group, and came to us when its parent died
  for (RankState& rank : ranks_)
    for (std::optional<RankPipe>* pipe : {&rank.out, &rank.err})
      while (*pipe && (*pipe)->pass()) {
      }
  pass_restart_points();
  send_flight_records();
  for (const RankState& rank : ranks_)
    if (!rank.ended) launcher_.send(message_of({.rank = rank.number, .code = 8}));
}

bool Attempt::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.running(); });
}

void Attempt::add_fds(std::vector<pollfd>& fds) const {
  fds.push_back({started_.restart_points.get(), POLLIN, 0});
  if (!takes_output()) return;
  for (const RankState& rank : ranks_)
    for (const std::optional<RankPipe>* pipe : {&rank.out, &rank.err})
      if (*pipe) fds.push_back({(*pipe)->fd(), POLLIN, 0});
}

double Attempt::wait_s() const {
  if (!any_running()) return 0;
  return std::min(stop_others_.deadline() - now(), some_wait_for_others() ? 0.25 : 1.0);
}

void Attempt::turn() {
  if (takes_output()) read_pipes();
  pass_restart_points();
  if (launcher_.is_lost()) kill_all();
  send_stalls();
  reap(false);
  keep_deadlines();
}

void Attempt::read_pipes() {
  std::vector<pollfd> fds;
  std::vector<RankPipe*> pipes;
  for (RankState& rank : ranks_)
    for (std::optional<RankPipe>* pipe : {&rank.out, &rank.err}) {
      if (!*pipe || (*pipe)->fd() < 0) continue;
      pipes.push_back(&**pipe);
      fds.push_back({(*pipe)->fd(), POLLIN, 0});
    }
  poll(fds.data(), fds.size(), 0);
  for (size_t i = 0; i < pipes.size(); ++i)
    if (fds[i].revents) pipes[i]->pass();
}

void Attempt::pass_restart_points() {
  std::string bytes;
  if (started_.restart_points.get() >= 0 && !read_available(started_.restart_points.get(), bytes))
    started_.restart_points.close();
  if (!bytes.empty()) launcher_.send({Message::points, 0, bytes});
}

// Where one has heard that the run does not go on; whoever is stopped has not.
void Attempt::send_stalls() {
  if (now() - looked_for_stalls_ < 1) return;
  looked_for_stalls_ = now();
  bool any = false;
  for (RankState& rank : ranks_) any = rank.flight.stall_was_told() || any;
  if (any) send_flight_records();
}

void Attempt::send_flight_records() const {
  for (const RankState& rank : ranks_)
    if (const auto record = rank.flight.bytes()) launcher_.send({Message::flight, rank.number, *record});
}

void Attempt::take(const Message& message) {
  switch (message.type) {
    case Message::signal:
      return on_passed_signal(message.rank);
    case Message::pause:
      is_paused_ = message.rank != 0;
      return;
    case Message::flight:
      return send_flight_records();
    case Message::end:
      ends_.push_back(rank_end_of(message));
      ends_.back().after_s = now();
      return note_end(ends_.back());
    default:
      return;
  }
}

void Attempt::on_signal(int number) {
  if (number == SIGUSR2) return signal_ranks(ranks_, number);  // they say where they are
  if (signal_ == 0) {
    signal_ = number == SIGHUP ? SIGTERM : number;
    signal_ranks(ranks_, signal_);
    late_.told_to_end(now());
  } else if (number == SIGHUP || number == SIGUSR1) {  // some senders follow SIGTERM with the first
  } else if (signal_ == SIGUSR1 && !reminded_) {       // a batch system's SIGTERM at the time limit
    reminded_ = true;
  } else {
    kill_all();
  }
}

void Attempt::on_own_signal(int number) {
  if (!order_.signals_reach_ranks) return on_signal(number);
  if (number == SIGUSR2) return;  // the ranks have it: they say where they are, and go on
  if (signal_ != 0) return;       // the ranks have it, too, and know what a second one means
  signal_ = number == SIGHUP ? SIGTERM : number;
  came_by_itself_ = expected_ == 0;
  expected_ = 0, expected_until_ = kNever;
  late_.told_to_end(now());
}

void Attempt::stand_still(bool stops) {
  signal_ranks(ranks_, stops ? SIGSTOP : SIGCONT);
  const auto now = std::chrono::steady_clock::now();
  if (stops)
    suspended_ = now;
  else
    start_ += now - suspended_;
}

void Attempt::on_passed_signal(int number) {
  if (number == SIGSTOP || number == SIGCONT) return stand_still(number == SIGSTOP);  // the launcher's Ctrl-Z
  if (!order_.signals_reach_ranks || number == SIGUSR2) return on_signal(number);
  if (came_by_itself_) {
    came_by_itself_ = false;
  } else if (signal_ != 0) {
    on_signal(number);
  } else if (expected_ == 0) {
    expected_ = number, expected_until_ = now() + kOwnSignalMayTakeS;
  } else {
    expected_until_ = now();
  }
}

// Also ends what the rank started and left in its group; WNOWAIT keeps the group's number from being used anew.
void Attempt::reap(bool wait) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    siginfo_t info = {};
    if (!ranks_[i].running()) continue;
    late_.note_stop(i, now());
    const auto pid = static_cast<id_t>(ranks_[i].pid);
    if (waitid(P_PID, pid, &info, WEXITED | WNOWAIT | (wait ? 0 : WNOHANG)) != 0 || !info.si_pid) continue;
    kill(-ranks_[i].pid, SIGKILL);
    waitpid(ranks_[i].pid, nullptr, 0);
    on_exit(i, info.si_status, info.si_code != CLD_EXITED);
  }
}

void Attempt::on_exit(size_t index, int status, bool killed) {
  RankState& rank = ranks_[index];
  rank.ended = true;
  const bool by_us = stop_others_.has_sent_sigterm() || insisted_ || !rank.fault.empty();
  const int own_code = status + (killed ? 128 : 0);
  // That of its error, if it came so far: 128 + n would be that of a signal.
  const bool tells = rank.fault == kSaidError && own_code > 0 && own_code < 128;
  const int code = rank.fault.empty() || tells ? own_code : 5;
  ends_.push_back({rank.number, code, killed, by_us, now(), rank.fault});
  launcher_.send(message_of(ends_.back()));
  note_end(ends_.back());
}

void Attempt::note_end(const RankEnd& end) {
  if (signal_ != 0 && !end.killed && is_as_asked(end.code, signal_)) return;
  // Rank 0 tells the others, whose waits end then; a rank that had come that far has told it itself. One that ended
  // well is news only where it never came. A stopped rank 0 reads nothing.
  const std::string news = "rank " + std::to_string(end.rank) + " has ended: " + describe_end(end) + "\n";
  static_cast<void>(!write(started_.news.get(), news.data(), news.size()));
  if (end.code != 0) stop_others_.begin(now());
}

// Of a rank alone the end is its own affair.
bool Attempt::some_said_error() const {
  return order_.has_several() &&
         std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.running() && r.said_error(); });
}

bool Attempt::some_wait_for_others() const {
  return any_running() && (!ends_.empty() || signal_ != 0 || some_said_error());
}

void Attempt::keep_deadlines() {
  if (now() >= expected_until_) {
    expected_until_ = kNever;
    on_signal(expected_);
    expected_ = 0;
  }
  if (!takes_output()) late_.output_waits(now());
  if (some_wait_for_others()) late_.watch(now(), !ends_.empty(), stop_others_.has_begun());
  if (some_said_error()) stop_others_.begin(now());
  if (any_running()) stop_others_.act(now(), signal_);
}

}  // namespace drivetrain::program
