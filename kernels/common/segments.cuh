// One launch over many arrays: which of them a piece of work belongs to.
#pragma once

#include <cstdint>

namespace drivetrain::kernels {

// The last of `count` segments whose `first` is at most `at`; `first` ascends and begins with 0. Segments without work
// share their `first` with the next one and are passed over.
template <class Segment>
__device__ __forceinline__ Segment segment_of(const Segment* segments, int64_t count, int64_t at) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (segments[middle].first <= at)
      low = middle;
    else
      high = middle;
  }
  return segments[low];
}

}  // namespace drivetrain::kernels
