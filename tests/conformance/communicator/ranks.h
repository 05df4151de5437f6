// Ranks for tests of communication: threads of this process over a store in memory. Suites start theirs by `run_ranks`,
// which a test may send elsewhere.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <drivetrain/communicator.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/rank_threads.h>

namespace drivetrain::test {

// What a suite's ranks are made of; a plugin's test may set other values first.
inline std::string usual_options = R"({"timeout_s": 20})";
inline at::Device (*device_of_rank)(int64_t) = [](int64_t) { return at::Device(at::kCPU); };

// How a rank's communicator is created with the options of a JSON text: by whoever tests one.
using CommunicatorMaker = std::function<std::shared_ptr<Communicator>(const std::string&, const Services&)>;
inline CommunicatorMaker communicator_maker = [](const std::string&, const Services&) -> std::shared_ptr<Communicator> {
  throw std::logic_error("no communicator was chosen");
};

// One rank with its communicator, as the runtime would make it.
struct Rank {
  Rank(int64_t rank, int64_t world_size, Store& store, const std::string& json)
      : services{.log = log,
                 .store = store,
                 .rank = rank,
                 .world_size = world_size,
                 .local_rank = rank,
                 .local_size = world_size,
                 .device = device_of_rank(rank),
                 .plugins = &maker} {
    communicator = communicator_maker(json, services);
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
  const InstalledMaker maker{services};
  std::shared_ptr<Communicator> communicator;
};

using Body = std::function<void(Rank&)>;

// Runs `body` on n threads; what each rank threw, "" for nothing.
inline std::vector<std::string> run_threads(int64_t n, const Body& body, const std::string& json = usual_options) {
  const auto store = make_memory_store();
  std::vector<std::string> errors(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      try {
        at::set_num_threads(1);  // as each rank of a run on shared cores
        Rank rank(r, n, *store, json);
        body(rank);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// How the suites start their ranks; a plugin's test may set `runner`, as where every process is one rank.
inline std::vector<std::string> (*runner)(int64_t, const Body&, const std::string&) = run_threads;
inline std::vector<std::string> run_ranks(int64_t n, const Body& body, const std::string& json = usual_options) {
  return runner(n, body, json);
}

}  // namespace drivetrain::test
