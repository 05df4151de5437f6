// Ranks for tests of communication: threads of this process over an in-memory store, or forked processes over
// the store of processes. Suites start theirs by `run_ranks`.
#pragma once

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include <drivetrain/communicator.h>
#include <drivetrain/mesh.h>

#include "rendezvous/rendezvous.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {

// What a suite's ranks are made of; a plugin's test may set other values first.
inline std::string usual_options = R"({"timeout_s": 20})";
inline at::Device (*device_of_rank)(int64_t) = [](int64_t) { return at::Device(at::kCPU); };

// One rank with its communicator, as the runtime would make it.
struct Rank {
  Rank(int64_t rank, int64_t world_size, Store& store, const std::string& json)
      : services{.log = log,
                 .store = store,
                 .rank = rank,
                 .world_size = world_size,
                 .local_rank = rank,
                 .local_size = world_size,
                 .device = device_of_rank(rank)} {
    const auto& entry = static_cast<const DrivetrainDescriptor*>(drivetrain_plugin)->entries[0];
    Problems problems;
    const auto options = static_cast<const OptionTable*>(entry.options())
                             ->parse(parse_json(json, "test"), "communicator", "params", problems);
    problems.throw_if_any();
    const CreateArgs args{options.get(), &services};
    communicator.reset(static_cast<Communicator*>(static_cast<Plugin*>(entry.create(&args))));
  }
  int64_t rank() const { return services.rank; }
  int64_t size() const { return services.world_size; }
  GroupPtr group(const std::vector<int64_t>& ranks, const std::string& label) {
    return communicator->make_group(ranks, label);
  }
  GroupPtr world() {
    std::vector<int64_t> all;
    for (int64_t r = 0; r < size(); ++r) all.push_back(r);
    return group(all, "world");
  }

  LinesLog log;
  Services services;
  std::unique_ptr<Communicator> communicator;
};

using Body = std::function<void(Rank&)>;

// Runs `body` on n threads; what each rank threw, "" for nothing.
inline std::vector<std::string> run_threads(int64_t n, const Body& body, const std::string& json = usual_options) {
  const auto store = make_local_store();
  std::vector<std::string> errors(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      try {
        Rank rank(r, n, *store, json);
        body(rank);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t r = 0; r < errors.size(); ++r) EXPECT_EQ(errors[r], "") << "on rank " << r;
}

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

// How the suites start their ranks; a plugin's test may set `runner`, as where every process is one rank.
inline std::vector<std::string> (*runner)(int64_t, const Body&, const std::string&) = run_threads;
inline std::vector<std::string> run_ranks(int64_t n, const Body& body, const std::string& json = usual_options) {
  return runner(n, body, json);
}

}  // namespace drivetrain::test
