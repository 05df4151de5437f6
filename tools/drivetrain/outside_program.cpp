#include "drivetrain/outside_program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "base/printable.h"
#include "cli/usage_error.h"

namespace drivetrain::program {
namespace {

constexpr std::array kPassedOn = {SIGTERM, SIGHUP, SIGUSR1};

volatile sig_atomic_t command_process = 0;  // the process; 0: there is none

extern "C" void pass_on_to_command(int signal) {
  if (command_process > 0) kill(static_cast<pid_t>(command_process), signal);
}

// Never returns; what execv says goes through the pipe.
[[noreturn]] void become(const std::string& path, const std::vector<std::string>& words, int said, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  std::vector<char*> arguments = {const_cast<char*>(path.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(path.c_str(), arguments.data());
  const int reason = errno;
  const ssize_t ignored = write(said, &reason, sizeof reason);
  static_cast<void>(ignored);
  _exit(127);
}

int told(const std::string& name, const std::string& path, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int signal = WTERMSIG(status);
  const std::string who = "drivetrain: error: " + name + " (" + one_line(path) + ") ";
  if (signal == SIGPIPE) {
    std::cerr << who + "cannot write to its output: nobody reads it\n";
    return 8;
  }
  std::cerr << who + "was ended by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")\n";
  return 128 + signal;
}

}  // namespace

int run_outside_program(const std::string& name, const std::string& path, const std::vector<std::string>& words) {
  std::array<int, 2> said{};
  if (pipe2(said.data(), O_CLOEXEC) != 0) throw UsageError(name + ": no pipe: " + strerror(errno));
  setenv("DRIVETRAIN_PROGRAM", std::filesystem::read_symlink("/proc/self/exe").c_str(), 1);
  std::cout.flush();
  const pid_t self = getpid(), child = fork();
  if (child == 0) become(path, words, said[1], self);
  const int no_process = errno;
  close(said[1]);
  if (child < 0) {
    close(said[0]);
    throw UsageError(name + ": no process: " + strerror(no_process));
  }
  command_process = child;
  for (const int signal : kPassedOn) std::signal(signal, pass_on_to_command);
  for (const int signal : {SIGINT, SIGQUIT}) std::signal(signal, SIG_IGN);
  int reason = 0, status = 0;
  const bool failed = read(said[0], &reason, sizeof reason) == sizeof reason;
  close(said[0]);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  command_process = 0;
  if (failed) throw UsageError(name + ": cannot start " + path + ": " + strerror(reason));
  return told(name, path, status);
}

}  // namespace drivetrain::program
