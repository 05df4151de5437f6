// The launcher in a process of its own, with shell scripts for ranks.
#pragma once

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "launch/agent.h"
#include "launch/launch.h"
#include "support/waiting.h"

namespace drivetrain::program {

using test::deadline_s;
using test::eventually;
using test::kNoTimeout;
using test::kShell;
using test::let_pass;
using test::scaled;

inline std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline size_t count_of(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A zombie whose parent is somebody else counts as gone.
inline bool is_gone(pid_t pid) {
  const std::string stat = content("/proc/" + std::to_string(pid) + "/stat");
  return stat.empty() || stat.find(") Z ") != std::string::npos;
}

// Of the ranks that an agent in this process starts, whose children are all its own. `watched`: called once it watches
// signals.
inline std::vector<RankEnd> ends_told_by_agent(
    const StartOrder& order, const std::function<void()>& watched = [] {}) {
  int both[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0) return {};
  const Descriptor launcher(both[1]);
  Agent agent(LauncherChannel(Descriptor(both[0]), Descriptor(dup(both[0])), ""));
  const std::string told = encoded({Message::start, 0, order.text()});
  if (write(launcher.get(), told.data(), told.size()) != static_cast<ssize_t>(told.size())) return {};
  agent.turn();
  SignalWatch signals;
  watched();
  for (agent.start(signals); !agent.is_done(); agent.turn()) {
    std::vector<pollfd> fds = agent.fds();
    fds.push_back({signals.fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), static_cast<int>(agent.wait_s() * 1000) + 1);
    while (const int number = signals.next()) agent.on_own_signal(number);
  }
  MessageReader reader(true);
  std::string said;
  read_available(launcher.get(), said);
  reader.take(said);
  std::vector<RankEnd> ends;
  while (const auto message = reader.next())
    if (message->type == Message::end) ends.push_back(rank_end_of(*message));
  return ends;
}

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() : folder_(testing::TempDir() + "/launch_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    request_.ranks = 2;
    request_.deadlines.peers_s = scaled(0.5);
    request_.deadlines.sigterm_s = scaled(0.5);
  }
  ~LaunchTest() override {
    if (launcher_ > 0) kill(launcher_, SIGKILL), waitpid(launcher_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }

  // The launcher in a process of its own; `script` is every rank. Files it writes lie in $D.
  void start(const std::string& script) { start(std::vector<std::string>{"/bin/bash", "-c", kShell + script}); }
  void start(const std::vector<std::string>& command) {
    setenv("D", folder_.c_str(), 1);
    request_.command = command;
    launcher_ = fork();
    ASSERT_GE(launcher_, 0);
    if (launcher_ != 0) return;
    dup2(open((folder_ + "/out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDOUT_FILENO);
    dup2(open(errors_to_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 0600), STDERR_FILENO);
    _exit(launch(request_));
  }

  // Without a deadline: a launch that does not end is ended with the test, by CTest.
  int finish() {
    int status = 0;
    waitpid(launcher_, &status, 0);
    launcher_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  int run(const std::string& script) {
    start(script);
    return finish();
  }

  std::string out() const { return content(folder_ + "/out"); }
  std::string err() const { return content(folder_ + "/err"); }
  std::vector<pid_t> pids() const {  // what scripts wrote by `echo PID >> $D/pids`
    std::vector<pid_t> list;
    std::ifstream file(folder_ + "/pids");
    for (pid_t pid = 0; file >> pid;) list.push_back(pid);
    return list;
  }
  void expect_all_gone() const {
    for (const pid_t pid : pids()) EXPECT_TRUE(eventually([&] { return is_gone(pid); })) << pid;
  }

  std::string folder_, errors_to_ = folder_ + "/err";
  LaunchRequest request_;
  pid_t launcher_ = -1;
};

}  // namespace drivetrain::program
