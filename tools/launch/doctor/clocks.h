// How far clocks of hosts are apart, from questions over connections that take their time. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace drivetrain::program {

// One question: when it was sent and answered by the clock of this host, and what the other clock said in between. In
// nanoseconds since 1970.
struct ClockSample {
  int64_t sent_ns = 0, there_ns = 0, received_ns = 0;
};

struct ClockOffset {
  double ahead_s = 0;   // of this host; negative: behind
  double within_s = 0;  // the truth is at most so far from it: half the way there and back
};

// Of the sample that was answered first. `samples` is not empty.
ClockOffset clock_offset(const std::vector<ClockSample>& samples);

// The two clocks that are farthest apart, as indices; `offsets` has two at least.
struct ClockPair {
  size_t behind = 0, ahead = 0;
};
ClockPair farthest_apart(const std::vector<ClockOffset>& offsets);

// The clock in the middle, so that one clock alone that is wrong is not what the others are compared with.
size_t middle_clock(const std::vector<ClockOffset>& offsets);

}  // namespace drivetrain::program
