// `drivetrain checkpoint average`: the mean of the weights of several checkpoints as a new one. Main thread.
//
// Averaged are the model's weights that are floating-point numbers: in float64, from the oldest checkpoint to the
// newest, rounded once to the type that the newest has. Whole numbers among them are the newest's. Everything else that
// a run goes on with, such as the optimizer's state and counters, is left out: there is no mean of it. So the result
// can be looked at and converted, and a run refuses to go on from it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "checkpoint_tools/stored_run.h"
#include "internal.h"

namespace drivetrain {

struct AverageRequest {
  std::vector<std::string> tags;             // in any order
  std::string output;                        // a folder that is not there yet, or is empty
  uint64_t part_bytes = uint64_t{64} << 20;  // about as much of the result is in memory at once, and in one file
};

struct DRIVETRAIN_INTERNAL AverageOutcome {
  bool stopped = false;  // nothing was left then
  std::string tag;       // of the new checkpoint
  std::vector<std::string> from;
  size_t averaged = 0, taken = 0, left_out = 0;  // tensors
  std::vector<std::string> strategies = {};      // ids of those whose state is among what is left out
  int64_t not_finite = 0;                        // elements of the result

  std::string text(const std::string& output) const;
  Value value(const std::string& output) const;
};

// Memory: two blocks of a few MB and one part of the result; there are at most 256 parts, larger ones then. `stop`:
// not 0 ends the work soon and removes what was written. Error(config) for wrong tags or an output that is not free,
// Error(checkpoint) if the checkpoints do not hold the same weights or are damaged.
DRIVETRAIN_INTERNAL AverageOutcome average_checkpoints(const StoredRun& run, const Registry& registry,
                                                       const AverageRequest& request, const std::atomic<int>& stop);

}  // namespace drivetrain
