#include "launch/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <system_error>

#include "config/printable.h"
#include "launch/late_ranks.h"
#include "launch/line_relay.h"
#include "launch/open_files.h"
#include "launch/outcome.h"
#include "launch/rank_process.h"
#include "launch/report.h"

namespace drivetrain::program {
namespace {

constexpr const char* kSaidError = "did not end after its error";

// The number of a closed stdin must not go to a socket or a pipe.
void open_standard_descriptors() {
  int fd = 0;
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

class Launcher {
 public:
  explicit Launcher(const LaunchRequest& request) : request_(request) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a rank leaves behind becomes a child of ours, to be ended
    signal(SIGPIPE, SIG_IGN);
    open_standard_descriptors();
    watch_signals();
  }

  ~Launcher() {
    signal_ranks(SIGKILL);
    while (any_running()) reap(true);
    end_orphans();
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  int run() {
    start_all();
    while (any_running()) {
      wait_for_something();
      reap(false);
      keep_deadlines();
    }
    end_orphans();
    for (RankState& rank : ranks_)
      for (LineRelay* relay : {rank.out.get(), rank.err.get()})
        while (relay && relay->pass()) {
        }
    const Report report(request_, ranks_, ends_, [this](const std::string& text) { say(text); });
    report.pass_errors();
    if (const auto failure = first_failure(ends_, signal_)) report.name(*failure);
    return launch_code(ends_, signal_);
  }

 private:
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  void say(const std::string& text) const { write_text(request_.err, "drivetrain launch: " + printable(text) + "\n"); }

  void watch_signals() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&mask, number);
    struct sigaction hangup = {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&mask, SIGHUP);  // nohup keeps its meaning
    sigprocmask(SIG_BLOCK, &mask, &old_mask_);
    signals_ = Descriptor(signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC));
    if (signals_.get() < 0) throw std::system_error(errno, std::generic_category(), "launch: signalfd");
  }

  void start_all() {
    int port = 0;
    Descriptor listener = listen_on_free_port(port);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "launch: pipe");
    Descriptor news(ends[0]);
    news_ = Descriptor(ends[1]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);  // a stopped rank 0 reads nothing
    const int count = request_.only_rank_0 ? 1 : request_.ranks;
    ranks_.resize(static_cast<size_t>(count));
    for (int rank = 0; rank < count; ++rank) {
      start_one(rank, port, rank == 0 ? listener.get() : -1, rank == 0 ? news.get() : -1);
      if (rank == 0) news.close(), listener.close();  // if rank 0 dies, others are refused at once instead of waiting
    }
  }

  void start_one(int rank, int port, int listener, int news) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    const std::string prefix = rank == 0 ? "" : "[rank " + std::to_string(rank) + "] ";
    const std::string number = std::to_string(rank), world = std::to_string(request_.ranks);
    Descriptor out, err;
    if (rank != 0) state.out = piped(out, request_.out, prefix);
    // On a terminal rank 0's two streams must stay in order, which a pipe for one of them would not keep.
    if (rank != 0 || !isatty(request_.err)) state.err = piped(err, request_.err, prefix);
    RankStart start{&request_.command,
                    {"RANK=" + number, "LOCAL_RANK=" + number, "WORLD_SIZE=" + world, "LOCAL_WORLD_SIZE=" + world,
                     "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port), "DRIVETRAIN_MASTER_LISTENS=1",
                     "DRIVETRAIN_RUN_TOKEN=" + token_},
                    out.get(),
                    err.get(),
                    listener,
                    news,
                    request_.config.file.get(),
                    request_.config.number,
                    &old_mask_};
    if (listener >= 0) start.environment.push_back("DRIVETRAIN_LISTEN_FD=" + std::to_string(listener));
    if (news >= 0) start.environment.push_back("DRIVETRAIN_NEWS_FD=" + std::to_string(news));
    state.pid = start_rank(start);
  }

  // A pipe whose write end goes to the rank.
  static std::unique_ptr<LineRelay> piped(Descriptor& write_end, int to, const std::string& prefix) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "launch: pipe");
    Descriptor read_end(ends[0]);
    write_end = Descriptor(ends[1]);
    fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
    return std::make_unique<LineRelay>(std::move(read_end), to, prefix);
  }

  bool any_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.running(); });
  }

  void wait_for_something() {
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
    std::vector<LineRelay*> relays;
    for (RankState& rank : ranks_)
      for (LineRelay* relay : {rank.out.get(), rank.err.get()}) {
        if (!relay || relay->fd() < 0) continue;
        relays.push_back(relay);
        fds.push_back({relay->fd(), POLLIN, 0});
      }
    const double wait_s = std::min(deadline_ - now(), some_wait_for_others() ? 0.25 : 3600.0);
    poll(fds.data(), fds.size(), std::max(0, static_cast<int>(wait_s * 1000) + 1));
    for (size_t i = 0; i < relays.size(); ++i)
      if (fds[i + 1].revents) relays[i]->pass();
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) on_signal(static_cast<int>(info.ssi_signo));
  }

  void on_signal(int number) {
    if (signal_ == 0) {
      signal_ = number == SIGHUP ? SIGTERM : number;
      signal_ranks(signal_);
      late_.told_to_end(now());
    } else if (number != SIGHUP) {  // some senders follow SIGTERM with it
      insisted_ = true;
      signal_ranks(SIGKILL);
    }
  }

  void signal_ranks(int number) const {
    for (const RankState& rank : ranks_)
      if (rank.running()) kill(rank.pid, number);
  }

  // Also ends what the rank started and left in its group; WNOWAIT keeps the group's number from being used anew.
  void reap(bool wait) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      RankState& rank = ranks_[i];
      siginfo_t info = {};
      if (!rank.running()) continue;
      late_.note_stop(i, now());
      if (waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOWAIT | (wait ? 0 : WNOHANG)) != 0 ||
          !info.si_pid)
        continue;
      kill(-rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
      rank.ended = true;
      const bool killed = info.si_code != CLD_EXITED;
      const bool by_us = stopping_ || insisted_ || !rank.fault.empty();
      const int own_code = info.si_status + (killed ? 128 : 0);
      // That of its error, if it came so far: 128 + n would be that of a signal.
      const bool tells = rank.fault == kSaidError && own_code > 0 && own_code < 128;
      const int code = rank.fault.empty() || tells ? own_code : 5;
      on_end({static_cast<int>(i), code, killed, by_us, now(), rank.fault});
    }
  }

  void on_end(const RankEnd& end) {
    ends_.push_back(end);
    const bool as_asked = end.code == 0 || (signal_ != 0 && !end.killed && is_as_asked(end.code, signal_));
    if (!as_asked && deadline_ == kNever) deadline_ = now() + request_.peers_may_take_s;
    if (as_asked) return;
    // Rank 0 tells the others, whose waits end then; a rank that had come that far has told it itself.
    write_text(news_.get(), "rank " + std::to_string(end.rank) + " has ended: " + describe_end(end) + "\n");
  }

  // Of a rank alone the end is its own affair.
  bool some_said_error() const {
    return ranks_.size() > 1 &&
           std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.running() && r.said_error(); });
  }
  bool all_lost_a_peer() const {
    return !ends_.empty() && signal_ == 0 &&
           std::all_of(ends_.begin(), ends_.end(), [](const RankEnd& end) { return end.code == 5; });
  }
  bool some_wait_for_others() const { return any_running() && (!ends_.empty() || signal_ != 0 || some_said_error()); }

  void keep_deadlines() {
    if (some_wait_for_others()) late_.watch(now(), !ends_.empty(), deadline_ != kNever);
    if (deadline_ == kNever && some_said_error()) deadline_ = now() + request_.peers_may_take_s;
    if (now() < deadline_ || !any_running()) return;
    if (stopping_) {
      signal_ranks(SIGKILL);
      deadline_ = now() + 3600;  // they are as good as gone
      return;
    }
    stopping_ = true;
    pass_first_errors(ranks_);  // the cause is not kept back for as long as that takes
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].running() || !ranks_[i].fault.empty()) continue;
      if (ranks_[i].stop_signal != 0) {
        late_.end_stopped(i);
        continue;
      }
      // Where all others lost a peer, it is this one: it hangs outside of what they wait for.
      if (ranks_[i].said_error())
        ranks_[i].fault = kSaidError;
      else if (all_lost_a_peer())
        ranks_[i].fault = "did not go on while the others waited for it,";
      const std::string problem =
          ranks_[i].fault.empty() ? "did not notice the failure of another rank" : ranks_[i].fault;
      say("rank " + std::to_string(i) + " " + problem + " and is ended");
      kill(ranks_[i].pid, SIGTERM);
    }
    deadline_ = now() + request_.sigterm_may_take_s;
  }

  // Processes that left a rank's group; ours since their parent died.
  void end_orphans() const {
    for (;;) {
      const std::string self = std::to_string(getpid());
      std::ifstream children("/proc/" + self + "/task/" + self + "/children");
      bool any = false;
      for (pid_t pid = 0; children >> pid; any = true) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
      if (!any) return;
    }
  }

  const LaunchRequest& request_;
  const std::string token_ = new_run_token();  // by environment: a command line can be read by everybody
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  sigset_t old_mask_ = {};
  Descriptor signals_, news_;
  std::vector<RankState> ranks_;
  std::vector<RankEnd> ends_;
  LateRanks late_{request_, ranks_, [this](const std::string& text) { say(text); }};
  int signal_ = 0;         // the first one passed on
  bool insisted_ = false;  // a second one came
  bool stopping_ = false;  // SIGTERM has been sent because of a failure
  double deadline_ = kNever;
};

}  // namespace

int launch(const LaunchRequest& request) try {
  const std::string too_few = make_room_for_open_files(request.ranks);
  if (!too_few.empty()) {
    write_text(request.err, "drivetrain: error: " + too_few + "\n");
    return 8;
  }
  return Launcher(request).run();
} catch (const std::system_error& e) {
  write_text(request.err, std::string("drivetrain: error: ") + e.what() + "\n");
  return 8;
}

}  // namespace drivetrain::program
