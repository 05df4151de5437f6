#include "launch/rank_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

namespace drivetrain::program {
namespace {

[[noreturn]] void throw_errno(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

// What is inherited makes way for the config, which takes a number that the user or the launcher chose.
std::vector<Inherited> beside_config(std::vector<Inherited> inherited, int config_number) {
  for (Inherited& one : inherited)
    if (one.descriptor >= 0 && one.descriptor == config_number)
      one.descriptor = fcntl(one.descriptor, F_DUPFD, config_number + 1);
  return inherited;
}

// Runs in the child, which has one thread and is about to become the rank.
[[noreturn]] void become_rank(const ProcessStart& start, char* const* argv, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(127);  // it died before the line above
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(start.in >= 0 ? start.in : nothing, STDIN_FILENO);
  if (start.out >= 0) dup2(start.out, STDOUT_FILENO);
  if (start.err >= 0) dup2(start.err, STDERR_FILENO);
  const bool moves_config = start.config >= 0 && start.config != start.config_number;
  const std::vector<Inherited> inherited = beside_config(start.inherited, moves_config ? start.config_number : -1);
  for (const Inherited& one : inherited)
    if (one.descriptor >= 0) fcntl(one.descriptor, F_SETFD, 0);
  if (start.config >= 0 && !moves_config) fcntl(start.config, F_SETFD, 0);
  if (moves_config) dup2(start.config, start.config_number);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGTTOU, SIG_IGN);  // not in the terminal's foreground group, yet allowed to write to it
  for (const int signal_number : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    signal(signal_number, SIG_DFL);
  set_variables(start.environment);
  for (const Inherited& one : inherited)
    if (one.descriptor >= 0)
      setenv(one.variable, std::to_string(one.descriptor).c_str(), 1);
    else
      unsetenv(one.variable);
  sigprocmask(SIG_SETMASK, static_cast<const sigset_t*>(start.signal_mask), nullptr);
  if (start.before && !start.before()) _exit(8);
  execvp(argv[0], argv);
  const std::string reason =
      std::string("drivetrain: error: cannot run ") + argv[0] + ": " + std::strerror(errno) + "\n";
  const ssize_t ignored = write(STDERR_FILENO, reason.data(), reason.size());
  static_cast<void>(ignored);
  _exit(127);
}

}  // namespace

void throw_no_process() {
  const int reason = errno;
  rlimit limit = {};
  std::string most;
  if (reason == EAGAIN && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    most = " (this user may have " + std::to_string(limit.rlim_cur) +
           " processes and threads, and has them: end some, or raise `ulimit -u`)";
  throw std::system_error(reason, std::generic_category(), "launch: cannot start a process" + most);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) close(), fd_ = other.fd_, other.fd_ = -1;
  return *this;
}

void Descriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Pipe new_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("launch: pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void do_not_wait_at(const Descriptor& end) { fcntl(end.get(), F_SETFL, O_NONBLOCK); }

std::string content_of(const Descriptor& file) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n; (n = pread(file.get(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  return text;
}

void set_variables(const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
}

Descriptor listen_on_free_port(int& port) {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (listener.get() < 0 || bind(listener.get(), raw, size) != 0 || listen(listener.get(), SOMAXCONN) != 0 ||
      getsockname(listener.get(), raw, &size) != 0)
    throw_errno("launch: no port of 127.0.0.1 to meet on");
  port = ntohs(address.sin_port);
  return listener;
}

std::string new_run_token() {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    throw_errno("launch: no random numbers for the run's secret");
  std::string token;
  for (const unsigned char byte : bytes)
    for (const int shift : {4, 0}) token += "0123456789abcdef"[byte >> shift & 15];
  return token;
}

pid_t start_process(const ProcessStart& start) {
  std::vector<char*> argv;
  for (const std::string& word : *start.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw_no_process();
  if (pid == 0) become_rank(start, argv.data(), launcher);
  setpgid(pid, pid);  // on both sides: whoever comes first
  return pid;
}

void end_children() {
  for (;;) {
    const std::string self = std::to_string(getpid());
    std::ifstream children("/proc/" + self + "/task/" + self + "/children");
    bool any = false;
    for (pid_t pid = 0; children >> pid; any = true) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    if (!any) return;
  }
}

}  // namespace drivetrain::program
