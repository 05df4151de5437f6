// Best-fit decreasing bin packing in time proportional to the number of items: sizes are whole numbers, so the open
// bins are kept by their free space. Deterministic. No state; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace drivetrain::packed {

// Bin b holds items[begin[b]] to items[begin[b + 1] - 1], the largest first.
struct Bins {
  std::vector<int32_t> begin, items;
};

// Every item in one bin, none of which holds more than `capacity`. sizes: from 1 to `capacity` each. From the largest
// item to the smallest, equal ones in their order, each is put where the least room is left; a new bin is opened where
// it fits in none.
Bins best_fit_decreasing(std::span<const int32_t> sizes, int32_t capacity);

}  // namespace drivetrain::packed
