// The flight records in a run's folder, and why those that are not there are missing. Thread: any; no state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "internal.h"
#include "watch/left_record.h"

namespace drivetrain {

struct LeftRecords {
  std::vector<LeftRecord> records;         // of one run, ascending by rank
  std::map<int64_t, std::string> missing;  // rank: why
  int64_t world_size() const { return records.front().world_size; }
};

// `given`: the folder of a run, or that of its records. One record that cannot be read does not hide the others. If
// records of several runs are there, those of the run that was written to last are read. Throws Error(io) if none can
// be read.
DRIVETRAIN_INTERNAL LeftRecords read_left_records(const std::string& given);

}  // namespace drivetrain
