// Parts of a step as keys of files, and which of them are one.
#pragma once

#include <cstddef>
#include <iterator>

#include "flight/record.h"

namespace drivetrain {

// "load"; of `outside`, which is a step's begin until its first instruction, "begin".
inline const char* part_name(FlightDoing doing) {
  constexpr const char* kNames[] = {"begin", "load",   "forward", "backward", "backward_weight", "send", "receive",
                                    "agree", "update", "reduce",  "replay",   "evaluate",        "save"};
  static_assert(std::size(kNames) == kFlightDoings);
  return kNames[static_cast<size_t>(doing)];
}

inline bool is_in_step(FlightDoing doing) {
  return doing != FlightDoing::outside && doing != FlightDoing::evaluate && doing != FlightDoing::save;
}

}  // namespace drivetrain
