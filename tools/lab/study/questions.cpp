#include "study/questions.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <future>
#include <iostream>
#include <thread>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "cli/parse.h"
#include "cli/usage_error.h"
#include "drivetrain/library.h"
#include "study/interrupts.h"

namespace drivetrain::study {
namespace {

using program::Descriptor;

constexpr double kAnswerTime = 120;   // seconds for one question
constexpr size_t kLargest = 1 << 17;  // bytes of a question
constexpr int kDescriptors = 3;       // of an answer: what it prints, errors, the exit code
constexpr size_t kControl = CMSG_SPACE(kDescriptors * sizeof(int));

[[noreturn]] void throw_errno(const char* what, int reason = errno) {
  throw fail(ErrorCode::io, "study: cannot ask the program for a plan: ", what, ": ", std::strerror(reason));
}

[[noreturn]] void throw_stopped() { throw fail(ErrorCode::config, "stopped while it planned, before any run"); }

// A message of one packet that can carry descriptors along.
struct Packet {
  explicit Packet(std::string& text) : part{text.data(), text.size()} {
    header.msg_iov = &part, header.msg_iovlen = 1, header.msg_control = control.data(),
    header.msg_controllen = kControl;
  }
  iovec part;
  alignas(cmsghdr) std::array<char, kControl> control{};
  msghdr header{};
};

void send_question(int socket, std::string text, const std::array<int, kDescriptors>& descriptors) {
  Packet packet(text);
  cmsghdr* const head = CMSG_FIRSTHDR(&packet.header);
  head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(head), descriptors.data(), sizeof descriptors);
  if (sendmsg(socket, &packet.header, MSG_NOSIGNAL) < 0) throw_errno("sending");
}

// False: the study is at its end.
bool receive_question(int socket, std::string& text, std::array<int, kDescriptors>& descriptors) {
  text.resize(kLargest);
  Packet packet(text);
  ssize_t size = 0;
  do size = recvmsg(socket, &packet.header, MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  const cmsghdr* const head = size > 0 ? CMSG_FIRSTHDR(&packet.header) : nullptr;
  if (!head) return false;
  std::memcpy(descriptors.data(), CMSG_DATA(head), sizeof descriptors);
  text.resize(static_cast<size_t>(size));
  return true;
}

int code_of(const std::vector<std::string>& words) try {
  return program::run_in_library(cli::parse(words));
} catch (const program::OutOfMemory& e) {
  std::cerr << "drivetrain: error: " + printable(e.what()) + "\n";
  return static_cast<int>(ErrorCode::out_of_memory);
} catch (const UsageError& e) {
  std::cerr << "drivetrain: error: " + printable(e.what()) + "\n";
  return static_cast<int>(ErrorCode::config);
}

// What a pipe says: an exit code; below 0, the reason why there is no process for the question. False: it is closed.
bool write_code(const std::array<int, kDescriptors>& descriptors, int code) {
  return write(descriptors[2], &code, sizeof code) == sizeof code;
}

// In a process of its own.
[[noreturn]] void answer(const std::string& text, const std::array<int, kDescriptors>& descriptors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  signal(SIGCHLD, SIG_DFL);
  dup2(descriptors[0], STDOUT_FILENO), dup2(descriptors[1], STDERR_FILENO);
  const Value question = parse_json(text, "a question");
  for (const Value::Member& variable : question.find("environment")->members())
    setenv(variable.key.c_str(), variable.value.as_string().c_str(), 1);
  std::vector<std::string> words;
  for (const Value& word : question.find("words")->items()) words.push_back(word.as_string());
  const int code = code_of(words);
  std::cout.flush();
  std::cerr.flush();
  _exit(write_code(descriptors, code) ? 0 : 1);
}

// Nothing of the study stays open here: the ledger's lock is the study's alone.
[[noreturn]] void serve(int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);  // Ctrl-C is for the study to understand
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
  signal(SIGCHLD, SIG_IGN);  // ended answers leave nothing behind
  dup2(socket, 3);
  close_range(4, ~0u, 0);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, number);
  try {
    program::load_library();
  } catch (const std::exception&) {  // every answer says it
  }
  std::string text;
  std::array<int, kDescriptors> descriptors{};
  for (const pid_t self = getpid(); receive_question(3, text, descriptors);) {
    const pid_t child = fork();
    if (child == 0) answer(text, descriptors, self);
    if (child < 0) write_code(descriptors, -errno);
    for (const int descriptor : descriptors) close(descriptor);
  }
  _exit(0);
}

std::string question_text(const ProcessStart& question) {
  Value words = Value::array(), environment = Value::object(), value = Value::object();
  for (size_t i = 1; i < question.command.size(); ++i) words.items().push_back(question.command[i]);
  for (const std::string& entry : question.environment) {
    const size_t equals = entry.find('=');
    environment.set(entry.substr(0, equals), entry.substr(equals + 1));
  }
  value.set("words", std::move(words)), value.set("environment", std::move(environment));
  const std::string text = value.to_json();
  if (text.size() > kLargest)
    throw fail(ErrorCode::config, "study: a cell changes ", text.size(), " bytes of text, at most ", kLargest,
               " are possible\n   put what is long into the base config, or into a file that it names");
  return text;
}

void read_code(int pipe, const ProcessStart& question, int& code) {
  if (read(pipe, &code, sizeof code) != sizeof code)
    throw fail(ErrorCode::io, "study: cannot ask the program for a plan: a process ended without an answer",
               "\n   it was killed, as by the kernel for memory, or it crashed; by hand it says more: ",
               join(question.command, " "));
  if (code < 0) throw_errno("no further process can be made", -code);
}

// Waits for the exit code.
void wait_for(int pipe, const ProcessStart& question, ProcessEnd& end) {
  const auto begin = std::chrono::steady_clock::now();
  for (pollfd wait{pipe, POLLIN, 0};;) {
    const int ready = poll(&wait, 1, 50);
    end.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (ready > 0) {
      read_code(pipe, question, end.code);
      return;
    }
    end.timed_out = end.wall_s > question.timeout_s;
    end.stopped = question.stops_by_second && Interrupts::count() >= 2;
    if (end.timed_out || end.stopped) return;
  }
}

}  // namespace

Questions::Questions() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw_errno("socketpair");
  socket_ = Descriptor(pair[0]);
  const Descriptor other(pair[1]);
  std::cout.flush();  // or the other process would have it too
  pid_ = fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ == 0) serve(other.get());
}

Questions::~Questions() {
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

ProcessEnd Questions::ask(const ProcessStart& question) const {
  const Descriptor out(memfd_create("drivetrain-study", MFD_CLOEXEC)),
      errors(memfd_create("drivetrain-study", MFD_CLOEXEC));
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) throw_errno("pipe");
  const Descriptor code(pipe[0]);
  {
    const Descriptor theirs(pipe[1]);
    send_question(socket_.get(), question_text(question), {out.get(), errors.get(), theirs.get()});
  }
  ProcessEnd end;
  wait_for(code.get(), question, end);
  end.out = written_to(out.get()), end.err = written_to(errors.get());
  return end;
}

std::optional<Value> Questions::answer(ProcessStart question, std::string& refusal) const {
  question.timeout_s = kAnswerTime;
  const ProcessEnd end = ask(question);
  const std::string& command = question.command[1];
  if (end.stopped) throw_stopped();
  if (end.timed_out)
    throw fail(ErrorCode::io, "study: `drivetrain ", command, "` did not answer within ", kAnswerTime, " s");
  if (end.code == 0) return parse_json(end.out, "the plan");
  refusal = without_prefix(end.err);
  if (refusal.empty()) refusal = concat("`drivetrain ", command, "` ended with exit ", end.code);
  return std::nullopt;
}

void ask_side_by_side(size_t first, size_t end, const std::function<void(size_t)>& ask_one) {
  std::atomic<size_t> next = first;
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < end;) {
      if (Interrupts::count() > 0) throw_stopped();
      ask_one(i);
    }
  };
  std::vector<std::future<void>> workers;
  for (unsigned n = std::max(1u, std::thread::hardware_concurrency()); n > 0; --n)
    workers.push_back(std::async(std::launch::async, work));
  for (std::future<void>& worker : workers) worker.wait();
  for (std::future<void>& worker : workers) worker.get();
}

std::string without_prefix(std::string text) {
  const std::string begin = "drivetrain: error: ";
  if (const size_t at = text.find(begin); at != std::string::npos) text.erase(0, at + begin.size());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace drivetrain::study
