// How many processors this process may keep busy: those that it may run on, and no more than the time that its control
// group has (a container's --cpus, systemd's CPUQuota, a pod's limit). Linux; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace drivetrain {

struct ProcessorShare {
  int64_t cores = 1;  // that this process may run on: `taskset`, cpusets
  std::optional<double>
      quota;  // processors' time of the tightest control group above it, in processors; none: no limit

  // Threads that can all run all the time, in whole ones; at least 1.
  int64_t usable() const;
  bool is_cut() const { return usable() < cores; }  // by the quota
};
// `root`: where /proc and /sys begin.
ProcessorShare processor_share(const std::string& root = "");

// The folders of this process's control group and of those above it, innermost first, of version 2 and of version 1's
// `controller` ("cpu", "memory"). A folder need not be there.
std::vector<std::string> control_groups(const std::string& controller, const std::string& root = "");

}  // namespace drivetrain
