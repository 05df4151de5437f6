// What this process may use of the machine: processors, memory, files, disk. What Linux does not tell is no value, so
// that a missing file under /proc is no problem of a run. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/toolkit/host/processors.h>

#include "internal.h"

namespace drivetrain {

struct ProcessorLimits {
  std::string name;      // "Intel(R) Xeon(R) ..."
  int64_t cores = 1;     // of the machine
  ProcessorShare share;  // this process's
};
DRIVETRAIN_INTERNAL ProcessorLimits processor_limits();

struct DRIVETRAIN_INTERNAL MemoryLimits {
  double total = 0, available = 0, swap = 0;      // bytes, of the machine
  std::optional<double> group_limit, group_used;  // of its control group, the tightest one above it
  std::optional<double> address_space;            // ulimit -v
  // What a run can have at most, and what of that is free now.
  double most() const;
  double free() const;
};
DRIVETRAIN_INTERNAL MemoryLimits memory_limits();

struct UserLimit {
  std::string name;               // as `ulimit -a` calls it
  char letter;                    // of `ulimit`
  std::optional<uint64_t> value;  // in ulimit's unit; none: unlimited
};
// Those that a run can meet: processes, size of a file, locked memory, stack.
DRIVETRAIN_INTERNAL std::vector<UserLimit> user_limits();

struct PortLimits {
  int first = 0, last = 0;  // from which the system chooses; 0: it does not tell
  int taken = 0;            // of them, by listeners and connections over TCP
};
DRIVETRAIN_INTERNAL PortLimits port_limits();

struct FileLimits {
  uint64_t open_now = 0, open_most = 0;  // ulimit -n; ~0 is unlimited
};
DRIVETRAIN_INTERNAL FileLimits file_limits();

struct DiskPlace {
  std::string folder;  // the nearest one above the place that is there
  double total = 0, free = 0;
  std::string unwritable;  // why nothing can be written there; empty: it can
};
// A file is made there and removed again.
DRIVETRAIN_INTERNAL DiskPlace disk_place(const std::string& place);

// "12.3 GB"
std::string bytes_text(double bytes);

}  // namespace drivetrain
