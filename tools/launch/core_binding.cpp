#include "launch/core_binding.h"

#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/printable.h"
#include "base/suggest.h"
#include "cli/commands.h"
#include "cli/usage_error.h"
#include "launch/meeting.h"
#include "launch/rank_log.h"
#include "launch/rank_setup.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

constexpr int64_t kLargestCore = 65535;

using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

Bitmap bitmap_of(const std::vector<int>& numbers) {
  Bitmap set(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (const int number : numbers) hwloc_bitmap_set(set.get(), static_cast<unsigned>(number));
  return set;
}

std::vector<int> numbers_of(hwloc_const_bitmap_t set) {
  std::vector<int> numbers;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) numbers.push_back(i);
  return numbers;
}

std::string list_text(hwloc_const_bitmap_t set) {
  char text[512] = {};
  hwloc_bitmap_list_snprintf(text, sizeof text, set);
  return text;
}

// What this process may use: a container or `taskset` can leave it less than there is.
Bitmap usable_cpus(hwloc_topology_t topology) {
  Bitmap set(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)), hwloc_bitmap_free);
  const Bitmap own(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (hwloc_topology_is_thissystem(topology) && hwloc_get_cpubind(topology, own.get(), HWLOC_CPUBIND_PROCESS) == 0)
    hwloc_bitmap_and(set.get(), set.get(), own.get());
  return set;
}

int node_of(hwloc_topology_t topology, hwloc_const_bitmap_t cpus) {
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));)
    if (hwloc_bitmap_isincluded(cpus, node->cpuset)) return static_cast<int>(node->os_index);
  return -1;
}

struct Core {
  std::vector<int> cpus;
  int node = -1;
};

Core core_of(hwloc_topology_t topology, hwloc_const_bitmap_t cpus) {
  return {numbers_of(cpus), node_of(topology, cpus)};
}

// In the order of the machine, so that neighbours are beside each other.
std::vector<Core> all_cores(hwloc_topology_t topology, hwloc_const_bitmap_t usable) {
  const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  const hwloc_obj_type_t type = cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<Core> list;
  const Bitmap both(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (hwloc_obj_t one = nullptr; (one = hwloc_get_next_obj_by_type(topology, type, one));) {
    hwloc_bitmap_and(both.get(), one->cpuset, usable);
    if (!hwloc_bitmap_iszero(both.get())) list.push_back(core_of(topology, both.get()));
  }
  return list;
}

std::vector<Core> listed_cores(hwloc_topology_t topology, hwloc_const_bitmap_t usable,
                               const std::vector<int>& numbers) {
  std::vector<Core> list;
  for (const int number : numbers) {
    if (!hwloc_bitmap_isset(usable, static_cast<unsigned>(number)))
      throw HostError(2, "--bind_core_list names core " + std::to_string(number) +
                             ", and the launcher may use the cores " + list_text(usable));
    list.push_back(core_of(topology, bitmap_of({number}).get()));
  }
  return list;
}

// Gives each rank its cores.
class Sharing {
 public:
  Sharing(std::vector<Core> cores, size_t ranks) : cores_(std::move(cores)), each_(cores_.size() / ranks), out_(ranks) {
    for (const Core& core : cores_) of_node_[core.node].push_back(&core);
  }

  // Whole ranks on each node; false: some would be on two.
  bool by_node(hwloc_topology_t topology, const std::vector<std::string>& near) {
    size_t room = 0;
    for (const auto& [node, cores] : of_node_) room += node < 0 ? 0 : cores.size() / each_;
    if (room < out_.size()) return false;
    for (size_t rank = 0; rank < out_.size(); ++rank)
      if (const int node = near_node(topology, near[rank]); node >= 0) take_of_node(rank, node);
    for (size_t rank = 0; rank < out_.size(); ++rank)
      for (const auto& [node, cores] : of_node_)
        if (out_[rank].cores == 0 && node >= 0) take_of_node(rank, node);
    return true;
  }

  void one_after_the_other() {
    for (size_t rank = 0; rank < out_.size(); ++rank)
      for (size_t i = 0; i < each_; ++i) give(rank, cores_[rank * each_ + i]);
  }

  const std::vector<RankCores>& out() const { return out_; }

 private:
  static int near_node(hwloc_topology_t topology, const std::string& near) {
    const Bitmap beside(hwloc_bitmap_alloc(), hwloc_bitmap_free);
    if (near.empty() || hwloc_bitmap_list_sscanf(beside.get(), near.c_str()) != 0) return -1;
    return node_of(topology, beside.get());
  }

  void take_of_node(size_t rank, int node) {
    auto& left = of_node_[node];
    if (left.size() < each_) return;
    for (size_t i = 0; i < each_; ++i) give(rank, *left[i]);
    left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(each_));
  }

  void give(size_t rank, const Core& core) {
    RankCores& own = out_[rank];
    own.cpus.insert(own.cpus.end(), core.cpus.begin(), core.cpus.end());
    own.node = own.cores == 0 || own.node == core.node ? core.node : -1;
    ++own.cores;
  }

  const std::vector<Core> cores_;
  const size_t each_;
  std::map<int, std::vector<const Core*>> of_node_;
  std::vector<RankCores> out_;
};

std::string first_line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// PCI places of the GPUs that NVIDIA's driver has, in their order, and their UUIDs.
std::vector<std::pair<std::string, std::string>> gpus_of_driver(const std::string& root) {
  std::map<std::string, std::string> list;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/proc/driver/nvidia/gpus", none)) {
    std::ifstream file(entry.path() / "information");
    std::string& uuid = list[lower_case(entry.path().filename())];
    for (std::string line; std::getline(file, line);)
      if (const size_t at = line.find("GPU-"); line.starts_with("GPU UUID") && at != std::string::npos)
        uuid = line.substr(at);
  }
  return {list.begin(), list.end()};
}

}  // namespace

std::vector<int> parse_core_list(const std::string& text) {
  std::vector<int> list;
  const auto wrong = [&](const std::string& why) {
    throw UsageError("launch: --bind_core_list wants numbers of cores that grow, such as 0,2-4, got \"" + shown(text) +
                     "\"" + why);
  };
  for (const std::string& part : cli::split(text, ',')) {
    const size_t dash = std::min(part.find('-'), part.size());
    const auto first = cli::read_whole(part.substr(0, dash));
    const auto last = dash == part.size() ? first : cli::read_whole(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *first > *last) wrong("");
    if (*last > kLargestCore) wrong(": no machine has a core " + std::to_string(*last));
    if (!list.empty() && *first <= list.back())
      wrong(": " + part + " does not come after " + std::to_string(list.back()));
    for (int64_t number = *first; number <= *last; ++number) list.push_back(static_cast<int>(number));
  }
  if (list.empty()) wrong("");
  return list;
}

std::vector<RankCores> cores_of_ranks(hwloc_topology* topology, const std::vector<int>& core_list,
                                      const std::vector<std::string>& near) {
  const Bitmap usable = usable_cpus(topology);
  std::vector<Core> cores =
      core_list.empty() ? all_cores(topology, usable.get()) : listed_cores(topology, usable.get(), core_list);
  if (cores.size() < near.size())
    throw HostError(2, "--bind_cores_to_rank: " + std::to_string(near.size()) + " ranks and " +
                           std::to_string(cores.size()) +
                           (core_list.empty() ? " cores that may be used" : " cores in --bind_core_list") +
                           "; start fewer ranks there, or leave it out");
  Sharing sharing(std::move(cores), near.size());
  if (!sharing.by_node(topology, near)) sharing.one_after_the_other();
  return sharing.out();
}

std::vector<std::string> cpus_near_gpus(const std::vector<std::string>& devices, const std::string& root) {
  const auto gpus = gpus_of_driver(root);
  std::vector<std::string> near(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto number = cli::read_whole(devices[i]);
    for (size_t k = 0; k < gpus.size(); ++k)
      if (number ? *number == static_cast<int64_t>(k)
                 : devices[i].starts_with("GPU-") && gpus[k].second.starts_with(devices[i]))
        near[i] = first_line_of(root + "/sys/bus/pci/devices/" + gpus[k].first + "/local_cpulist");
  }
  return near;
}

CoreBinding::CoreBinding(const std::string& core_list, int ranks, const std::string& visible) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0)
    throw HostError(
        8, std::string("--bind_cores_to_rank: hwloc cannot read the cores of this machine: ") + std::strerror(errno));
  topology_ = {topology, hwloc_topology_destroy};
  std::vector<std::string> devices = visible.empty() ? std::vector<std::string>() : cli::split(visible, ',');
  while (visible.empty() && devices.size() < static_cast<size_t>(ranks))
    devices.push_back(std::to_string(devices.size()));
  devices.resize(static_cast<size_t>(ranks));
  cores_ = cores_of_ranks(topology, core_list.empty() ? std::vector<int>() : parse_core_list(core_list),
                          cpus_near_gpus(devices));
}

bool CoreBinding::bind_this_process(int local_rank) const {
  const RankCores& own = of(local_rank);
  hwloc_topology_t topology = topology_.get();
  if (hwloc_set_cpubind(topology, bitmap_of(own.cpus).get(), HWLOC_CPUBIND_PROCESS) != 0) {
    write_text(STDERR_FILENO,
               "drivetrain: error: launch: --bind_cores_to_rank: the rank cannot be bound to the cores " +
                   list_text(bitmap_of(own.cpus).get()) + ": " + std::strerror(errno) + "\n");
    return false;
  }
  if (own.node < 0 || hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) < 2) return true;
  const int flags = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;  // the only thread, and what becomes of it
  if (hwloc_set_membind(topology, bitmap_of({own.node}).get(), HWLOC_MEMBIND_BIND, flags) != 0)
    write_text(STDERR_FILENO, "drivetrain launch: the rank has its cores, and memory of any NUMA node: that of node " +
                                  std::to_string(own.node) + " alone is not to be had: " + std::strerror(errno) + "\n");
  return true;
}

void check_setup(const RankSetup& setup, int ranks) {
  if (setup.has_logs()) make_log_folder(setup.log_folder);
  if (setup.bind_cores) CoreBinding(setup.core_list, ranks, "");
}

}  // namespace drivetrain::program
