// A flight record that a run left behind. Thread: any; no state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "flight/record.h"
#include "internal.h"

namespace drivetrain {

struct LeftRecord {
  int64_t rank = 0, world_size = 1, pid = 0;
  std::string host, call;  // the plugin call that it was last seen in; "": none
  std::string written;     // time of day of its last change, "2026-11-23 21:04:05 UTC"
  double last_s = 0;       // of the same, since the record was made
  int64_t written_ns = 0;  // of the same, since 1970
  FlightPlace place;
  std::vector<FlightEntry> entries;
  std::map<std::string, int64_t> reached;
  uint64_t run = 0;        // 0: it had not begun
  int64_t work_steps = 0;  // of `work`; 0: it had made no step
  WorkSeconds work = {};   // own work a step, on average over the last steps
};
// Throws Error(io): no such file, or what is wrong with it.
DRIVETRAIN_INTERNAL LeftRecord read_record(const std::string& path);

}  // namespace drivetrain
