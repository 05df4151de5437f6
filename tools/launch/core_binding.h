// `--bind_cores_to_rank`: each rank of a host has cores of its own, as many as the others, on one NUMA node where that
// can be, with that node's memory, and on the node of its GPU where there is one.
#pragma once

#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace drivetrain::program {

// "0,2-4": numbers that grow, as DeepSpeed takes them. Throws UsageError.
std::vector<int> parse_core_list(const std::string& text);

struct RankCores {
  std::vector<int> cpus;  // numbers of the kernel: with hyper-threading each core has several
  int cores = 0;
  int node = -1;  // NUMA node that has all of them, by the kernel's number; -1: there is none
};

// `core_list`: of --bind_core_list; empty: all cores that this process may use. `near`: for each rank the CPUs beside
// its GPU, as "0-15,32-47"; "": any. Throws HostError.
std::vector<RankCores> cores_of_ranks(hwloc_topology* topology, const std::vector<int>& core_list,
                                      const std::vector<std::string>& near);

// The CPUs beside each of these devices, entries of CUDA_VISIBLE_DEVICES: numbers or UUIDs. "": not known.
std::vector<std::string> cpus_near_gpus(const std::vector<std::string>& devices, const std::string& root = "");

class CoreBinding {
 public:
  // For `ranks` ranks of this host, which have the devices that CUDA_VISIBLE_DEVICES=`visible` names, or the first
  // ones. Throws HostError.
  CoreBinding(const std::string& core_list, int ranks, const std::string& visible);

  const RankCores& of(int local_rank) const { return cores_.at(static_cast<size_t>(local_rank)); }
  // In the process that is about to become the rank. Says on stderr what cannot be; false: not even the cores.
  bool bind_this_process(int local_rank) const;

 private:
  std::shared_ptr<hwloc_topology> topology_;
  std::vector<RankCores> cores_;
};

}  // namespace drivetrain::program
