#include "study/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "launch/rank_process.h"
#include "launch/write_text.h"
#include "study/interrupts.h"

namespace drivetrain::study {
namespace {

using Clock = std::chrono::steady_clock;
using program::Descriptor;

constexpr double kGrace = 5;  // seconds from one demand to end to the next, harder one

// A file in memory, at its begin.
Descriptor input_file(const std::string& text) {
  Descriptor file(memfd_create("drivetrain-study", MFD_CLOEXEC));
  program::write_text(file.get(), text);
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

Descriptor output_file(const std::string& path) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.get() < 0) throw fail(ErrorCode::io, "study: cannot write ", one_line(path), ": ", std::strerror(errno));
  return file;
}

// Ends a launch in steps: it passes the first signal on to its ranks and kills them at the second.
class Ending {
 public:
  explicit Ending(pid_t pid) : pid_(pid) {}
  bool begun() const { return steps_ > 0; }
  void begin(double now) {
    if (!begun()) step(now);
  }
  void go_on(double now) {
    if (begun() && now >= next_) step(now);
  }

 private:
  void step(double now) {
    if (++steps_ <= 2)
      kill(pid_, SIGTERM);
    else
      kill(-pid_, SIGKILL);
    next_ = now + (steps_ == 1 ? 1 : kGrace);
  }
  const pid_t pid_;
  int steps_ = 0;
  double next_ = 0;
};

ProcessEnd watch(const ProcessStart& start, pid_t pid) {
  const auto begin = Clock::now();
  const auto now = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  ProcessEnd end;
  Ending ending(pid);
  for (int status = 0;;) {
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) {
      end.wall_s = now();
      end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      end.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      return end;
    }
    if (start.tick) start.tick(now());
    if (now() > start.timeout_s && !ending.begun()) end.timed_out = true, ending.begin(now());
    if (start.stops_by_second && Interrupts::count() >= 2 && !ending.begun()) end.stopped = true, ending.begin(now());
    ending.go_on(now());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

std::string written_to(int descriptor) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n; (n = pread(descriptor, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  return text;
}

ProcessEnd run_process(const ProcessStart& start) try {
  const Descriptor to =
      start.output.empty() ? Descriptor(memfd_create("drivetrain-study", MFD_CLOEXEC)) : output_file(start.output);
  const Descriptor errors(start.output.empty() ? memfd_create("drivetrain-study", MFD_CLOEXEC) : -1);
  const Descriptor from = start.input.empty() ? Descriptor() : input_file(start.input);
  program::ProcessStart rank = {};
  rank.in = from.get();
  rank.command = &start.command, rank.environment = start.environment;
  rank.out = to.get(), rank.err = errors.get() >= 0 ? errors.get() : to.get();
  const pid_t pid = program::start_process(rank);
  if (start.memory_limit > 0) {
    const rlimit limit{static_cast<rlim_t>(start.memory_limit), static_cast<rlim_t>(start.memory_limit)};
    prlimit(pid, RLIMIT_AS, &limit, nullptr);
  }
  ProcessEnd end = watch(start, pid);
  if (start.output.empty()) end.out = written_to(to.get()), end.err = written_to(errors.get());
  return end;
} catch (const std::system_error& e) {
  throw fail(ErrorCode::io, "study: ", e.what());
}

}  // namespace drivetrain::study
