#include "launch/starter_process.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

#include "base/printable.h"
#include "launch/message.h"
#include "launch/rank_process.h"

namespace drivetrain::program {
namespace {

constexpr double kSigtermMayTakeS = 3;

}  // namespace

StarterProcess::StarterProcess(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                               const void* signal_mask, Outlet& words_to)
    : name_(command.front()), relay_(words_to, "[" + name_ + "] ") {
  Pipe words = new_pipe();
  words_from_ = std::move(words.from);
  do_not_wait_at(words_from_);
  ProcessStart start;
  start.command = &command;
  start.environment = environment;
  start.out = start.err = words.to.get();
  start.signal_mask = signal_mask;
  pid_ = start_process(start);
}

StarterProcess::~StarterProcess() {
  keep_back();
  end(0);
}

void StarterProcess::pass() {
  std::string bytes;
  if (words_from_.get() >= 0 && !read_available(words_from_.get(), bytes)) words_from_.close();
  std::istringstream lines(bytes);
  for (std::string line; std::getline(lines, line);)
    if (line.find_first_not_of(" -=\r") != std::string::npos) last_line_ = line;
  if (passes_) relay_.take(bytes);
}

void StarterProcess::keep_back() { passes_ = false; }

bool StarterProcess::has_ended() {
  int status = 0;
  if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
    pid_ = -1;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    pass();
  }
  return pid_ <= 0;
}

std::string StarterProcess::last_words() const { return last_line_.empty() ? "" : ": " + printable(last_line_); }

std::string StarterProcess::reason() const {
  return name_ + " ended with exit " + std::to_string(code_) + last_words();
}

bool StarterProcess::ended_within(double seconds) {
  for (double waited = 0; !has_ended() && waited < seconds; waited += 0.05) {
    pass();  // where its pipe is full it cannot end
    poll(nullptr, 0, 50);
  }
  return has_ended();
}

void StarterProcess::end(double may_take_s) {
  if (!ended_within(may_take_s)) {
    kill(pid_, SIGTERM);
    if (!ended_within(kSigtermMayTakeS)) {
      kill(-pid_, SIGKILL);
      int status = 0;
      waitpid(pid_, &status, 0);
      pid_ = -1;
    }
  }
  if (passes_) relay_.finish();
}

}  // namespace drivetrain::program
