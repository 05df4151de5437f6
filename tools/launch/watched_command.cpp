#include "launch/watched_command.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace drivetrain::program {
WatchedCommand::WatchedCommand(const std::vector<std::string>& command, const std::vector<std::string>& environment)
    : out_(memfd_create("out", MFD_CLOEXEC)), err_(memfd_create("err", MFD_CLOEXEC)) {
  sigset_t none;
  sigemptyset(&none);
  ProcessStart start;
  start.command = &command, start.environment = environment;
  start.out = out_.get(), start.err = err_.get();
  start.signal_mask = &none;
  pid_ = start_process(start);
}

WatchedCommand::~WatchedCommand() {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool WatchedCommand::has_ended() {
  int status = 0;
  if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
    kill(-pid_, SIGKILL);  // what it has left
    pid_ = -1;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return pid_ <= 0;
}

void WatchedCommand::signal(int number) {
  if (pid_ > 0) kill(pid_, number);
}

std::string WatchedCommand::out() const { return content_of(out_); }

std::string WatchedCommand::err() const { return content_of(err_); }

}  // namespace drivetrain::program
