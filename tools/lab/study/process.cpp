#include "study/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

Descriptor text_file() { return Descriptor(memfd_create("drivetrain-study", MFD_CLOEXEC)); }

bool bind_to(const std::vector<int>& cpus) {
  const size_t most = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  cpu_set_t* const set = CPU_ALLOC(most);
  const size_t bytes = CPU_ALLOC_SIZE(most);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  const bool bound = sched_setaffinity(0, bytes, set) == 0;
  if (!bound)
    program::write_text(STDERR_FILENO, concat("drivetrain: error: study: the run cannot be bound to the cores "
                                              "of its slot: ",
                                              std::strerror(errno), "\n"));
  CPU_FREE(set);
  return bound;
}

}  // namespace

// Ends a launch in steps: it passes the first signal on to its ranks and kills them at the second.
class Process::Ending {
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

bool hold_to(int64_t bytes) {
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  if (setrlimit(RLIMIT_AS, &limit) == 0) return true;
  program::write_text(STDERR_FILENO,
                      concat("drivetrain: error: study: the run cannot be held to \"memory_limit_bytes\" ", bytes, ": ",
                             std::strerror(errno), "\n"));
  return false;
}

std::string written_to(int descriptor) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n; (n = pread(descriptor, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  return text;
}

Process::Process(const ProcessStart& start) try
    : start_(start),
      out_(start.output.empty() ? text_file() : output_file(start.output)),
      err_(start.output.empty() ? text_file() : Descriptor()),
      begin_(Clock::now()) {
  const Descriptor from = start.input.empty() ? Descriptor() : input_file(start.input);
  program::ProcessStart rank = {};
  rank.in = from.get();
  rank.command = &start.command, rank.environment = start.environment;
  rank.out = out_.get(), rank.err = err_.get() >= 0 ? err_.get() : out_.get();
  // In the new process: what it starts itself has the limit, too, however soon it does.
  rank.before = [&] {
    return (start.cpus.empty() || bind_to(start.cpus)) && (start.memory_limit == 0 || hold_to(start.memory_limit));
  };
  pid_ = program::start_process(rank);
  ending_ = std::make_unique<Ending>(pid_);
} catch (const std::system_error& e) {
  throw fail(ErrorCode::io, "study: ", e.what());
}

Process::~Process() {
  for (; pid_ > 0 && !poll(); std::this_thread::sleep_for(kPollEvery)) ending_->begin(now_s());
}

double Process::now_s() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

std::optional<ProcessEnd> Process::poll() {
  if (pid_ <= 0) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) {
    pid_ = -1;
    end_.wall_s = now_s();
    end_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end_.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (start_.output.empty()) end_.out = written_to(out_.get()), end_.err = written_to(err_.get());
    return end_;
  }
  if (now_s() > start_.timeout_s && !ending_->begun()) end_.timed_out = true, ending_->begin(now_s());
  if (start_.stops_by_second && Interrupts::count() >= 2 && !ending_->begun())
    end_.stopped = true, ending_->begin(now_s());
  ending_->go_on(now_s());
  return std::nullopt;
}

ProcessEnd run_process(const ProcessStart& start) {
  Process process(start);
  for (;; std::this_thread::sleep_for(kPollEvery))
    if (const std::optional<ProcessEnd> end = process.poll()) return *end;
}

}  // namespace drivetrain::study
