#include "launch/guardian.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iterator>

#include <drivetrain/toolkit/files/proc_text.h>

#include "base/rank_variables.h"
#include "launch/activity.h"

namespace drivetrain::program {
namespace {

constexpr int kMostRounds = 50;  // some start others while they are looked for

bool has_mark(const std::filesystem::path& process, const std::string& mark) {
  const std::string text = proc_text(process / "environ");
  return text.starts_with(mark) || text.find('\0' + mark) != std::string::npos;
}

// Returns how many there were.
int kill_marked(const std::string& mark) {
  int count = 0;
  std::error_code gone;
  for (std::filesystem::directory_iterator entry("/proc", gone), end; !gone && entry != end; entry.increment(gone)) {
    const std::string name = entry->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos || !has_mark(entry->path(), mark)) continue;
    if (kill(std::stoi(name), SIGKILL) == 0) ++count;
  }
  return count;
}

// Returns once it is gone, which it is after it was stopped for so long, or lets go.
void wait_for_parent(pid_t parent, double may_stand_s) {
  for (double stood_s = 0;;) {
    pollfd word{STDIN_FILENO, POLLIN, 0};
    if (poll(&word, 1, may_stand_s > 0 ? 1000 : -1) != 0) return;
    stood_s = activity_of(parent).state == 'T' ? stood_s + 1 : 0;
    if (stood_s >= may_stand_s) kill(parent, SIGKILL);
  }
}

// It holds nothing that somebody waits to see closed, and no signal for its parent's group or terminal reaches it.
[[noreturn]] void guard(int parent_lives, const std::string& mark, pid_t parent, double may_stand_s) {
  setsid();
  prctl(PR_SET_NAME, "drivetrain-end");
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  dup2(parent_lives, STDIN_FILENO);
  close_range(STDIN_FILENO + 1, ~0U, 0);
  wait_for_parent(parent, may_stand_s);
  char word = 0;
  ssize_t n = 0;
  do n = read(STDIN_FILENO, &word, 1);
  while (n < 0 && errno == EINTR);
  for (int round = 0; n == 0 && round < kMostRounds && kill_marked(mark) > 0; ++round) usleep(20'000);
  _exit(0);
}

}  // namespace

std::string new_launch_id() { return new_run_token().substr(0, 32); }

Guardian::Guardian(const std::string& launch_id, double may_stand_s) {
  Pipe life = new_pipe();
  life_ = std::move(life.to);
  const std::string mark = std::string(RankStart::kLaunchId) + "=" + launch_id + '\0';
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw_no_process();
  if (pid_ == 0) life_.close(), guard(life.from.get(), mark, parent, may_stand_s);
}

// With a word: there is nothing to end.
Guardian::~Guardian() {
  const ssize_t ignored = write(life_.get(), "b", 1);
  static_cast<void>(ignored);
  life_.close();
  waitpid(pid_, nullptr, 0);
}

}  // namespace drivetrain::program
