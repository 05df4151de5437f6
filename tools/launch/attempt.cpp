#include "launch/attempt.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <system_error>

#include "launch/line_relay.h"
#include "launch/report.h"

namespace drivetrain::program {
namespace {

constexpr double kOwnSignalMayTakeS = 1.5;

}  // namespace

Attempt::Attempt(const LaunchRequest& request, const RanksToStart& wanted, SignalWatch& signals)
    : request_(request),
      wanted_(wanted),
      signals_(signals),
      late_(request, ranks_, [this](const std::string& text) { say(text); }),
      stop_others_(request, ranks_, ends_, late_, [this](const std::string& text) { say(text); }) {
  if (wanted.others) late_.has_others_elsewhere();
  // A shell stops what it started, and the ranks are in groups of their own: they would go on, unseen.
  signals_.around_stops([this](bool stops) { signal_ranks(ranks_, stops ? SIGSTOP : SIGCONT); });
}

Attempt::~Attempt() {
  signals_.around_stops({});
  signal_ranks(ranks_, SIGKILL);
  while (any_running()) reap(true);
  end_children();
}

AttemptEnd Attempt::run() {
  try {
    start_ranks(wanted_, request_.config, signals_.mask_before(), started_);
  } catch (const std::system_error& e) {
    insisted_ = true;  // those that run already are killed for it
    return could_not_start(e.what());
  }
  while (any_running()) {
    wait_for_something();
    reap(false);
    keep_deadlines();
  }
  end_children();  // what left a rank's group, and came to us when its parent died
  pass_the_rest();
  if (wanted_.others) send_flight_records();
  if (wanted_.others) return {};  // they know all of it, and more
  const Report report(ranks_, ends_, [this](const std::string& text) { say(text); });
  report.pass_errors();
  AttemptEnd end;
  end.failure = first_failure(ends_, signal_);
  if (end.failure) {
    report.name(*end.failure);
    const RankState& rank = ranks_[static_cast<size_t>(end.failure->rank - wanted_.place.first)];
    end.cause = rank.name() + ": " + describe_end(*end.failure);
    end.error = rank.error();
  }
  end.code = launch_code(ends_, signal_);
  end.signal = signal_;
  end.restart_point = started_.restart_points.newest();
  end.has_new_checkpoint = started_.restart_points.has_new_checkpoint();
  end.run_is_done = started_.restart_points.run_is_done();
  return end;
}

AttemptEnd Attempt::could_not_start(const std::string& reason) const {
  const auto started =
      wanted_.place.first + std::count_if(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.pid > 0; });
  const std::string which = "rank " + std::to_string(started) + " could not be started: ";
  if (wanted_.others)
    wanted_.others->said(which + reason);
  else
    wanted_.outlets->err.put("drivetrain: error: " + which + reason + "\n");
  AttemptEnd end;
  end.code = 8;
  end.failure = RankEnd{.rank = static_cast<int>(started), .code = 8};
  end.cause = which + reason;
  return end;
}

void Attempt::say(const std::string& text) const {
  if (wanted_.others)
    wanted_.others->said(text);
  else
    launcher_says(wanted_.outlets->err, text);
}

bool Attempt::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.running(); });
}

bool Attempt::takes_output() const {
  return wanted_.others ? wanted_.others->takes_output() : wanted_.outlets->take_more();
}

void Attempt::wait_for_something() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}, {started_.restart_points.fd(), POLLIN, 0}};
  for (const pollfd& one : wanted_.others ? wanted_.others->fds() : wanted_.outlets->rooms()) fds.push_back(one);
  const size_t first = fds.size();
  std::vector<LineRelay*> relays;
  const bool may_read = takes_output();
  for (RankState& rank : ranks_)
    for (LineRelay* relay : {rank.out.get(), rank.err.get()}) {
      if (!relay || relay->fd() < 0 || !may_read) continue;
      relays.push_back(relay);
      fds.push_back({relay->fd(), POLLIN, 0});
    }
  const double wait_s = std::min(stop_others_.deadline() - now(), some_wait_for_others() ? 0.25
                                                                  : wanted_.others       ? 1.0
                                                                                         : 3600.0);
  poll(fds.data(), fds.size(), std::max(0, static_cast<int>(wait_s * 1000) + 1));
  for (size_t i = 0; i < relays.size(); ++i)
    if (fds[first + i].revents) relays[i]->pass();
  if (wanted_.outlets) wanted_.outlets->turn();
  started_.restart_points.take();
  while (const int number = signals_.next()) on_own_signal(number);
  if (!wanted_.others) return;
  hear_of_others();
  send_stalls();
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
    if (const auto record = rank.flight.bytes()) wanted_.others->flight_record(rank.number, *record);
}

void Attempt::hear_of_others() {
  const OtherHosts::News news = wanted_.others->news();
  for (const int number : news.signals) on_passed_signal(number);
  for (const RankEnd& end : news.ends) {
    ends_.push_back(end);
    ends_.back().after_s = now();
    note_end(ends_.back());
  }
  if (news.wants_flight_records) send_flight_records();
  if (!news.lost) return;
  insisted_ = true;
  signal_ranks(ranks_, SIGKILL);
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
    insisted_ = true;
    if (wanted_.outlets) wanted_.outlets->insist();
    signal_ranks(ranks_, SIGKILL);
  }
}

void Attempt::on_own_signal(int number) {
  if (!wanted_.signals_reach_ranks) return on_signal(number);
  if (number == SIGUSR2) return;  // the ranks have it: they say where they are, and go on
  if (signal_ != 0) return;       // the ranks have it, too, and know what a second one means
  signal_ = number == SIGHUP ? SIGTERM : number;
  came_by_itself_ = expected_ == 0;
  expected_ = 0, expected_until_ = kNever;
  late_.told_to_end(now());
}

void Attempt::on_passed_signal(int number) {
  if (!wanted_.signals_reach_ranks || number == SIGUSR2) return on_signal(number);
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
  // At once: the others may take seconds to end.
  if (!wanted_.others && killed && !by_us && signal_ == 0 && any_running() && !stop_others_.has_begun())
    say(rank.name() + " is lost: " + describe_end(ends_.back()));
  if (wanted_.others) wanted_.others->ended(ends_.back());
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
  return !is_alone() &&
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
  if (wanted_.outlets && (signal_ != 0 || stop_others_.has_begun())) wanted_.outlets->end();
  if (any_running()) stop_others_.act(now(), signal_);
}

void Attempt::pass_the_rest() {
  for (RankState& rank : ranks_)
    for (LineRelay* relay : {rank.out.get(), rank.err.get()})
      while (relay && relay->pass()) {
      }
  while (started_.restart_points.take()) {
  }
}

}  // namespace drivetrain::program
