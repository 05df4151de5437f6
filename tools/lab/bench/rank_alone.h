// One rank that measures communication among others of its kind: device, store, services and plugins, but no run.
// Main thread, once per process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/services.h>

#include "bench/bench.h"
#include "internal.h"
#include "plugin/registry.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {

[[noreturn]] void become_launcher(const BenchArguments& arguments, const std::string& bench);  // of -n ranks, default 2

class DRIVETRAIN_INTERNAL RankAlone {
 public:
  // Reads --device, --threads and --plugin-path; waits for rank 0's store. Errors: config, communication.
  RankAlone(const BenchArguments& arguments, const RankEnvironment& environment);

  // Returns when all ranks are there and say the same. Collective; Error on every rank otherwise.
  void meet(const Value& facts);
  // The numbers of every rank, rank 0's first; on other ranks nothing. Collective.
  std::vector<std::vector<double>> gather(const std::vector<double>& mine);

  const RankEnvironment& environment() const { return env_; }
  const Registry& registry() const { return registry_; }
  const Services& services() const { return *services_; }
  const std::string& device_name() const { return device_name_; }
  at::Device device() const;

 private:
  void open(const BenchArguments& arguments);

  RankEnvironment env_;
  std::string device_name_;
  Registry registry_;
  std::shared_ptr<Log> log_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<Services> services_;
  int64_t gathered_ = 0;
};

}  // namespace drivetrain
