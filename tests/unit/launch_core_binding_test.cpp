// Which cores the ranks of a host get, on machines that hwloc makes up.
#include <gtest/gtest.h>

#include <hwloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "cli/usage_error.h"
#include "launch/core_binding.h"
#include "launch/meeting.h"

namespace drivetrain::program {
namespace {

using Numbers = std::vector<int>;

// The ranks of `near.size()` on a machine that `description` tells in hwloc's words.
std::vector<RankCores> cores(const char* description, const Numbers& list, const std::vector<std::string>& near) {
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, description), 0);
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owned(topology, hwloc_topology_destroy);
  return cores_of_ranks(topology, list, near);
}
std::vector<RankCores> cores(const char* description, const Numbers& list, size_t ranks) {
  return cores(description, list, std::vector<std::string>(ranks));
}
std::string refusal(const char* description, const Numbers& list, size_t ranks) {
  try {
    cores(description, list, ranks);
  } catch (const HostError& e) {
    EXPECT_EQ(e.code, 2);
    return e.what();
  }
  return "not refused";
}

constexpr const char* kTwoNodes = "numa:2 core:4 pu:2";  // CPUs 0-7 and 8-15

TEST(CoreBinding, ranks_have_as_many_cores_each_and_none_has_those_of_another) {
  for (const char* machine : {kTwoNodes, "numa:1 core:8 pu:1", "numa:4 core:3 pu:2"})
    for (const size_t ranks : {1u, 2u, 3u, 5u, 8u}) {
      std::set<int> all;
      size_t count = 0;
      const std::vector<RankCores> given = cores(machine, {}, ranks);
      for (const RankCores& one : given) {
        EXPECT_EQ(one.cores, given[0].cores);
        all.insert(one.cpus.begin(), one.cpus.end()), count += one.cpus.size();
      }
      EXPECT_EQ(all.size(), count) << machine << " " << ranks;
      EXPECT_GE(given[0].cores, 1);
    }
}

TEST(CoreBinding, a_rank_is_on_one_node_where_that_can_be) {
  const auto two = cores(kTwoNodes, {}, 2);
  EXPECT_EQ(two[0].cpus, (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(two[1].node, 1);
  const auto five = cores("numa:2 core:7 pu:1", {}, 4);  // three cores each: the seventh of a node stays free
  EXPECT_EQ(five[2].cpus, (Numbers{7, 8, 9}));
  EXPECT_EQ(five[2].node, 1);
  const auto three = cores(kTwoNodes, {}, 3);
  EXPECT_EQ(three[1].cores, 2);
  const auto across = cores("numa:2 core:3 pu:1", {}, 1);
  EXPECT_EQ(across[0].cores, 6);
  EXPECT_EQ(across[0].node, -1);
}

TEST(CoreBinding, a_rank_is_near_its_gpu) {
  const auto given = cores(kTwoNodes, {}, {"8-15", "", "0-7", ""});
  EXPECT_EQ(given[0].node, 1);
  EXPECT_EQ(given[2].node, 0);
  EXPECT_EQ(given[0].cpus, (Numbers{8, 9, 10, 11}));
  EXPECT_EQ(given[1].cpus, (Numbers{4, 5, 6, 7}));
}

TEST(CoreBinding, only_listed_cores_are_used) {
  const auto given = cores(kTwoNodes, {1, 3, 8, 10}, 2);
  EXPECT_EQ(given[0].cpus, (Numbers{1, 3}));
  EXPECT_EQ(given[1].cpus, (Numbers{8, 10}));
  EXPECT_EQ(given[1].cores, 2);
}

TEST(CoreBinding, what_cannot_be_is_refused) {
  EXPECT_NE(refusal(kTwoNodes, {}, 9).find("9 ranks and 8 cores that may be used"), std::string::npos);
  EXPECT_NE(refusal(kTwoNodes, {1, 2}, 3).find("3 ranks and 2 cores in --bind_core_list"), std::string::npos);
  EXPECT_NE(refusal(kTwoNodes, {1, 16}, 1).find("names core 16, and the launcher may use the cores 0-15"),
            std::string::npos);
  EXPECT_EQ(parse_core_list("0,2-4"), (Numbers{0, 2, 3, 4}));
  for (const char* wrong : {"", ",", "a", "3-1", "1,1", "2-4,3", "-1", "1-", "1,0", "99999"})
    EXPECT_THROW(parse_core_list(wrong), UsageError) << wrong;
  try {
    parse_core_list("0-99999999");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("no machine has a core 99999999"), std::string::npos) << e.what();
  }
}

TEST(CoreBinding, gpus_are_found_by_number_and_by_uuid) {
  const std::string root = testing::TempDir() + "/core_binding_" + std::to_string(getpid());
  for (const auto& [place, uuid, cpus] :
       {std::tuple{"0000:3B:00.0", "GPU-aa11", "0-7"}, std::tuple{"0000:D8:00.0", "GPU-bb22", "8-15"}}) {
    std::string small(place);
    for (char& c : small) c = static_cast<char>(std::tolower(c));
    std::filesystem::create_directories(root + "/proc/driver/nvidia/gpus/" + place);
    std::ofstream(root + "/proc/driver/nvidia/gpus/" + place + "/information")
        << "Model: \t\t none\nGPU UUID: \t " << uuid << "\n";
    std::filesystem::create_directories(root + "/sys/bus/pci/devices/" + small);
    std::ofstream(root + "/sys/bus/pci/devices/" + small + "/local_cpulist") << cpus << "\n";
  }
  EXPECT_EQ(cpus_near_gpus({"1", "GPU-aa11", "2", "MIG-x", "GPU-bb"}, root),
            (std::vector<std::string>{"8-15", "0-7", "", "", "8-15"}));
  EXPECT_EQ(cpus_near_gpus({"0"}, root + "/none"), (std::vector<std::string>{""}));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace drivetrain::program
