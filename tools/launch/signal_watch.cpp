#include "launch/signal_watch.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace drivetrain::program {

SignalWatch::SignalWatch() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&mask, number);
  for (const int number : {SIGHUP, SIGTSTP}) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&mask, number);
  }
  sigprocmask(SIG_BLOCK, &mask, &mask_before_);
  descriptor_ = Descriptor(signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC));
  if (fd() >= 0) return;
  const int reason = errno;
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  throw std::system_error(reason, std::generic_category(), "launch: signalfd");
}

SignalWatch::~SignalWatch() { sigprocmask(SIG_SETMASK, &mask_before_, nullptr); }

int SignalWatch::next() {
  signalfd_siginfo info;
  while (read(fd(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGTSTP)
      stand_still();
    else if (info.ssi_signo != SIGCHLD)
      return static_cast<int>(info.ssi_signo);
  }
  return 0;
}

void SignalWatch::stand_still() const {
  if (around_stops_) around_stops_(true);
  raise(SIGSTOP);
  if (around_stops_) around_stops_(false);
}

int SignalWatch::next_within(double seconds) {
  using namespace std::chrono;
  const auto deadline = steady_clock::now() + duration_cast<steady_clock::duration>(duration<double>(seconds));
  for (;;) {
    if (const int number = next(); number != 0 && number != SIGUSR2) return number;
    const auto left = duration_cast<milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return 0;
    pollfd readable{fd(), POLLIN, 0};
    poll(&readable, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
  }
}

}  // namespace drivetrain::program
