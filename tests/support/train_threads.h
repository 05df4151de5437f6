// Whole training runs inside a test: the ranks are threads of this process that share a store and the plugins of this
// build.
//
// That it works at all shows that runtime and plugins keep no globals. Each rank computes on one thread, so results do
// not depend on the machine. Thread: the caller's, which waits. Errors: the one that some rank threw first.
#pragma once

#include <fcntl.h>

#include <ATen/Parallel.h>

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/train.h>
#include "log/log_console.h"
#include "train/train_run.h"

namespace drivetrain::test {

struct RunResult : TrainedRun {
  TrainOutcome outcome;  // of rank 0
};

// The plugins beside libdrivetrain.so.
inline const Registry& built_plugins() {
  static const Registry registry(SearchPath::standard({}, {}, ""));
  return registry;
}

// What `drivetrain train` does for one rank, without environment and signals. The lines for people go nowhere.
inline TrainOutcome train_as_rank(const Value& config, int rank, int ranks, const std::shared_ptr<Store>& store,
                                  const Registry& registry = built_plugins(), int threads = 1) {
  static const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  static const std::atomic<int> stop = 0;
  at::set_num_threads(threads);
  TrainRequest request;
  Problems problems;
  request.config = config;
  request.config_path = "test.json";
  request.settings = read_run_settings(config, request.config_path, problems);
  request.registry = &registry;
  request.chosen = choose_plugins(config, registry, request.settings.device, problems);
  problems.throw_if_any();
  request.setup.environment.rank = request.setup.environment.local_rank = rank;
  request.setup.environment.world_size = request.setup.environment.local_size = ranks;
  request.setup.store = store;
  request.setup.log = make_console_log({.rank = rank, .out = nowhere, .err = nowhere});
  request.stop = &stop;
  return train_rank(request);
}

// `config`: as in a file, with output_dir.
inline RunResult run_threads(const Value& config, int ranks, const Registry& registry = built_plugins()) {
  const auto store = make_local_store();
  RunResult result;
  result.folder = config.find("output_dir")->as_string();
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const TrainOutcome outcome = train_as_rank(config, rank, ranks, store, registry);
        if (rank == 0) result.outcome = outcome;
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  result.metrics = read_metrics_file(result.folder);
  return result;
}

// For suites of the testkit, which may have opened further libraries.
inline TrainedRun train_by_threads(const Value& config, int ranks) {
  const std::vector<std::string> folders = installed_plugins().outside_folders();
  if (folders.empty()) return run_threads(config, ranks);
  static std::map<std::vector<std::string>, Registry> registries;
  return run_threads(config, ranks,
                     registries.try_emplace(folders, SearchPath::standard({}, folders, "")).first->second);
}

}  // namespace drivetrain::test
