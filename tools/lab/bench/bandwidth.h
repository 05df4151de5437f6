// What the memory of this machine gives to simple loops, for working sets of a given size.
#pragma once

#include <map>

#include "bench/timing.h"

namespace drivetrain {

// A triad a = b + s c and an update in place a = s a + b: 12 bytes per element each.
struct MemoryLoops {
  std::vector<TimedWork> works;
  std::vector<double> bytes;  // that one call of each moves
};

class Bandwidth {
 public:
  explicit Bandwidth(const at::Device& device) : device_(device) {}
  // Over arrays of together `bytes` bytes, rounded to a power of two; kept for the next one who asks.
  const MemoryLoops& loops_at(double bytes);

 private:
  at::Device device_;
  std::map<int, MemoryLoops> known_;  // by log2 of bytes
};

// The least seconds of each work, taken in turns `rounds` times, and more often while all took less than a fifth of a
// second.
std::vector<double> least_seconds(const at::Device& device, const std::vector<TimedWork>& works, int64_t rounds);

}  // namespace drivetrain
