#include "schedulers/command_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <system_error>

#include <drivetrain/toolkit/seconds_since.h>

#include "cli/commands.h"
#include "hosts/message.h"
#include "launch/rank_process.h"

namespace drivetrain::program {
namespace {

constexpr double kMayTakeS = 10;
using Clock = std::chrono::steady_clock;

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

CommandOutput output_of(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "launch: pipe");
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  fcntl(from.get(), F_SETFL, O_NONBLOCK);
  sigset_t mask;
  sigemptyset(&mask);
  RankStart start;
  start.command = &words;
  start.out = start.err = to.get();
  start.signal_mask = &mask;
  const pid_t pid = start_rank(start);
  to.close();
  CommandOutput said;
  const Clock::time_point begin = Clock::now();
  bool open = true;
  while (open && seconds_since(begin) < kMayTakeS) {
    pollfd readable{from.get(), POLLIN, 0};
    poll(&readable, 1, 100);
    open = read_available(from.get(), said.text);
  }
  if (open) kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  said.code = open ? 124 : code_of(status);
  while (!said.text.empty() && said.text.back() == '\n') said.text.pop_back();
  return said;
}

std::string first_in_path(const std::vector<std::string>& names) {
  const char* const path = std::getenv("PATH");
  for (const std::string& name : names)
    for (const std::string& folder : cli::split(path ? path : "", ':'))
      if (!folder.empty() && access((folder + "/" + name).c_str(), X_OK) == 0) return name;
  return "";
}

}  // namespace drivetrain::program
