// A process that a test starts, watches and signals while it runs.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <map>
#include <stdexcept>

#include "program/program_fixture.h"
#include "support/waiting.h"

namespace drivetrain::test {

// Of a rank that is started by hand.
using Environment = std::map<std::string, std::string>;

// A port that nothing listens on now.
inline std::string free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener, raw, size), 0);
  getsockname(listener, raw, &size);
  close(listener);
  return std::to_string(ntohs(address.sin_port));
}
// One of two.
inline Environment environment(int rank, const std::string& port) {
  return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
}

// The process of that rank among those that were started with the file `config`, whose path no other test has. Found by
// its environment.
inline int pid_of_rank(const std::string& config, int rank) {
  const std::string wanted = concat('\0', "RANK=", rank, '\0');
  for (const int pid : processes_with(config)) {
    const std::string variables = '\0' + file_bytes("/proc/" + std::to_string(pid) + "/environ");
    if (variables.find(wanted) != std::string::npos) return pid;
  }
  // Not -1: kill() takes that for every process there is.
  throw std::runtime_error(concat("no process of rank ", rank));
}

// Of a run that is perhaps writing the next line.
inline size_t lines_of(const std::string& file) {
  const std::string bytes = file_bytes(file);
  return static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\n'));
}

class Background {
 public:
  // Starts `words` in `folder`; stdout and stderr go to a file there.
  Background(const std::string& folder, std::vector<std::string> words,
             const std::map<std::string, std::string>& environment = {}) {
    static int count = 0;
    output_path_ = folder + "/output-" + std::to_string(count++);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int out = open(output_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(out, STDOUT_FILENO), dup2(out, STDERR_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (chdir(folder.c_str()) == 0) execv(argv[0], argv.data());
    _exit(126);
  }
  Background(Background&& other) noexcept : pid_(other.pid_), code_(other.code_), output_path_(other.output_path_) {
    other.pid_ = -1;
  }
  ~Background() {
    if (pid_ <= 0 || code_ >= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }

  // The exit code, 128 + signal; -1: it still runs at the deadline.
  int wait() {
    eventually([&] { return ended(); });
    return code_;
  }
  bool ended() {
    int status = 0;
    if (code_ < 0 && waitpid(pid_, &status, WNOHANG) == pid_)
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_ >= 0;
  }
  std::string output() const { return file_bytes(output_path_); }

  // Waits until the file holds something; false if the process ends before.
  bool wait_for_file(const std::string& path) {
    const auto there = [&] {
      std::error_code absent;
      return std::filesystem::file_size(path, absent) > 0 && !absent;
    };
    return eventually([&] { return there() || ended(); }) && there();
  }

 private:
  pid_t pid_ = -1;
  int code_ = -1;
  std::string output_path_;
};

}  // namespace drivetrain::test
