// The flight record of a rank (runtime/flight/record.h) in memory that the agent of its host holds too: it is there
// when the rank is gone, whatever ended it, and nothing is left when the agent is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/rank_process.h"

namespace drivetrain::program {

class HeldRecord {
 public:
  HeldRecord() = default;
  // A rank without it keeps its record to itself: where there is no such memory, this has none.
  static HeldRecord make();

  int fd() const { return memory_.get(); }  // for the rank
  // The record as it is now; nothing: none was begun, or the rank's end was a good one.
  std::optional<std::string> bytes() const;
  // Whether it was said, since the last time, that the run does not go on.
  bool stall_was_told();

 private:
  Descriptor memory_;
  uint32_t stalls_ = 0;
};

}  // namespace drivetrain::program
