// Starting one rank as a child process. It sits in a process group of its own, so that Ctrl-C reaches it once, through
// the launcher, and so that everything it started can be ended with it; the kernel ends it if the launcher dies.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace drivetrain::program {

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }
  void close();
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Pipe {
  Descriptor from, to;
};
Pipe new_pipe();                             // throws std::system_error
void do_not_wait_at(const Descriptor& end);  // reads and writes there return at once

// All of a file, whatever was read of it before.
std::string content_of(const Descriptor& file);

// A listening socket on a free port of 127.0.0.1, so that no other program can take the port between its choice and the
// moment rank 0 serves on it. Throws std::system_error.
Descriptor listen_on_free_port(int& port);

// The secret that the ranks of one run share: 32 random bytes, as 64 hexadecimal digits. Throws std::system_error.
std::string new_run_token();

// Each NAME=VALUE, for this process and those that it starts.
void set_variables(const std::vector<std::string>& entries);

// A descriptor that a rank gets under its own number, which a variable names. -1: none, and the variable is not set.
struct Inherited {
  const char* variable;
  int descriptor;
};

struct ProcessStart {
  const std::vector<std::string>* command;  // looked up in PATH if it has no '/'
  std::vector<std::string> environment;     // NAME=VALUE, replacing what the launcher has under NAME
  int in = -1;                              // -1: nothing to read
  int out = -1, err = -1;                   // -1: the launcher's own
  std::vector<Inherited> inherited;
  int config = -1, config_number = -1;  // a descriptor that the rank finds under that number
  const void* signal_mask = nullptr;    // sigset_t that the rank starts with
  std::function<bool()> before = {};    // in the new process, before the command; false: it ends with exit 8
};

// After fork() has failed: why, with the limit where it is one. Throws std::system_error.
[[noreturn]] void throw_no_process();

// Throws std::system_error if there can be no further process. A command that cannot be run ends with 127 and says why.
pid_t start_process(const ProcessStart& start);

// Kills the children of this process and waits for them. For one whose children are all its own, and to which the
// orphans among their descendants come (PR_SET_CHILD_SUBREAPER).
void end_children();

}  // namespace drivetrain::program
