// Ranks as forked processes over the store of processes, in place of threads. For tests of this tree.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <drivetrain/testkit/communicator/ranks.h>
#include "rendezvous/rendezvous.h"

namespace drivetrain::test {

// A listening socket on a free port of the loopback, as a launcher makes it.
struct Listener {
  Listener() {
    fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, 64) != 0)
      throw std::runtime_error("listen");
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
  }
  RankEnvironment environment(int64_t rank, int64_t world_size) const {
    RankEnvironment env{.rank = rank, .world_size = world_size, .local_rank = rank, .local_size = world_size};
    env.master_port = port;
    env.token = "a secret of these tests alone";
    if (rank == 0) env.listen_fd = fd;
    return env;
  }
  int fd = -1;
  int64_t port = 0;
};

// Runs `body` on n forked processes; each one's exit status (as of waitpid) and what it threw. A body may end its
// process.
struct Ended {
  int status = 0;
  pid_t pid = 0;
  std::string error;
};
inline std::vector<Ended> run_processes(int64_t n, const Body& body, const std::string& json = usual_options) {
  const Listener listener;
  std::vector<Ended> ended(static_cast<size_t>(n));
  std::vector<int> pipes;
  for (int64_t r = 0; r < n; ++r) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      std::string error;
      try {
        if (r != 0) close(listener.fd);
        const auto store = make_store(listener.environment(r, n), 20);
        Rank rank(r, n, *store, json);
        body(rank);
      } catch (const std::exception& e) {
        error = e.what();
      }
      if (write(ends[1], error.data(), error.size()) < 0) _exit(2);
      _exit(error.empty() ? 0 : 1);
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
    ended[static_cast<size_t>(r)].pid = pid;
  }
  close(listener.fd);
  for (size_t r = 0; r < ended.size(); ++r) {
    char buffer[4096];
    for (ssize_t got; (got = read(pipes[r], buffer, sizeof buffer)) > 0;)
      ended[r].error.append(buffer, static_cast<size_t>(got));
    close(pipes[r]);
    waitpid(ended[r].pid, &ended[r].status, 0);
  }
  return ended;
}

// As run_threads, but with processes; a failed expectation in one of them is an error of that rank.
inline std::vector<std::string> run_forked(int64_t n, const Body& body, const std::string& json = usual_options) {
  const auto checked = [&](Rank& r) {
    body(r);
    if (::testing::Test::HasFailure()) throw std::runtime_error("an expectation failed in this rank's process");
  };
  std::vector<std::string> errors;
  for (const Ended& ended : run_processes(n, checked, json))
    errors.push_back(ended.error.empty() && ended.status != 0 ? concat("status ", ended.status) : ended.error);
  return errors;
}

}  // namespace drivetrain::test
