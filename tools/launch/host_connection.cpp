#include "launch/host_connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "base/printable.h"

namespace drivetrain::program {
namespace {

// ssh says nothing of either. A connection that is cut brings nothing for four seconds before ssh gives it up, while an
// agent speaks each second to its end.
constexpr double kCutIsSilentS = 3;
constexpr const char* kNoAnswer = "the host, or the network to it, does not answer";
constexpr const char* kAgentKilled =
    "its agent was killed there while the connection stood, perhaps for want of memory (`dmesg` on that host)";

// What ssh says of the key of a host that it knows by another one; "": nothing.
std::string changed_key(const std::string& said) {
  if (said.find("IDENTIFICATION HAS CHANGED") == std::string::npos) return "";
  std::istringstream lines(said);
  std::string offending;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("Offending ")) offending = line.substr(0, line.find('\r'));
  return "its host key is another one than ssh knows" + (offending.empty() ? "" : " (" + printable(offending) + ")") +
         ": if the host was installed anew, remove the old key there; if not, somebody may stand between";
}

std::string last_line_of(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

// ssh takes the first value of an option, so what the user says goes before ours. A link that is cut is noticed within
// five seconds.
std::vector<std::string> ssh_command(const HostsRequest& request, const std::string& host, const std::string& program) {
  std::vector<std::string> words{"ssh"};
  words.insert(words.end(), request.launcher_args.begin(), request.launcher_args.end());
  if (request.ssh_port != 0) words.insert(words.end(), {"-p", std::to_string(request.ssh_port)});
  for (const char* option : {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=1", "ServerAliveCountMax=4",
                             "LogLevel=ERROR", "ForwardX11=no", "ClearAllForwardings=yes"})
    words.insert(words.end(), {"-o", option});
  words.insert(words.end(), {"-T", "--", host, "exec " + shell_quoted(program) + " agent"});
  return words;
}

HostConnection::HostConnection(const Host& host, const std::vector<std::string>& command, const void* signal_mask,
                               Outlet& to)
    : host_(host), errors_to_(to) {
  Pipe in = new_pipe(), out = new_pipe(), err = new_pipe();
  ProcessStart start;
  start.command = &command;
  start.in = in.from.get(), start.out = out.to.get(), start.err = err.to.get();
  start.signal_mask = signal_mask;
  pid_ = start_process(start);
  to_ = Outbox(std::move(in.to));
  from_ = std::move(out.from), err_ = std::move(err.from);
  do_not_wait_at(from_), do_not_wait_at(err_);
}

HostConnection::HostConnection(const Host& host, Descriptor socket, Outlet& to)
    : host_(host), to_(Outbox(Descriptor(fcntl(socket.get(), F_DUPFD_CLOEXEC, 3)))), errors_to_(to) {
  from_ = std::move(socket);
  fault_ = "its agent is gone";
}

HostConnection::~HostConnection() { kill_ssh(); }

std::vector<Message> HostConnection::receive(double passed_s) {
  std::string words;
  if (err_.get() >= 0 && !read_available(err_.get(), words)) err_.close();
  if (errors_)
    errors_->take(words);
  else
    said_ = (said_ + words).substr(0, 1 << 20);
  if (const std::string line = last_line_of(words); !line.empty()) last_line_ = line;

  std::vector<Message> list;
  std::string bytes;
  if (is_open() && !read_available(from_.get(), bytes)) from_.close();
  // A launcher that was stopped itself has read nothing for as long.
  silent_s_ = bytes.empty() ? silent_s_ + std::min(passed_s, 1.0) : 0;
  reader_.take(bytes);
  try {
    while (auto message = reader_.next()) list.push_back(std::move(*message));
  } catch (const std::exception& e) {
    fault_ = e.what();
    kill_ssh();
  }
  return list;
}

void HostConnection::pass_errors() {
  errors_.emplace(errors_to_, "[" + name() + "] ");
  errors_->take(said_);
  if (const std::string& before = reader_.before_mark(); !before.empty()) errors_->take(before);
}

void HostConnection::hang_up() {
  if (to_.fd() >= 0) shutdown(to_.fd(), SHUT_WR);  // of a socket, whose other number stays open; a pipe is none
  to_.close();
}

void HostConnection::kill_ssh() {
  hang_up();
  from_.close();
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  int status = 0;
  if (waitpid(pid_, &status, 0) == pid_ && WIFEXITED(status)) code_ = WEXITSTATUS(status);
  pid_ = -1;
}

void HostConnection::reap(double within_s) {
  for (int tenths = 0; pid_ > 0 && tenths <= static_cast<int>(within_s * 10); ++tenths) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      if (WIFEXITED(status)) code_ = WEXITSTATUS(status);
      return;
    }
    poll(nullptr, 0, 100);
  }
  kill_ssh();
}

std::string HostConnection::reason() {
  reap(1);
  receive(0);  // its last words
  if (!fault_.empty()) return fault_;
  if (const std::string key = changed_key(said_); !key.empty()) return key;
  std::string text = last_line_.empty() ? "" : printable(last_line_);
  if (code_ == 255 && text.empty()) text = errors_ && silent_s_ < kCutIsSilentS ? kAgentKilled : kNoAnswer;
  if (code_ >= 0) text = "ssh ended with exit " + std::to_string(code_) + (text.empty() ? "" : ": " + text);
  return text.empty() ? "ssh ended and said nothing" : text;
}

}  // namespace drivetrain::program
