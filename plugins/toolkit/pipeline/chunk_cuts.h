// Cuts for stages of several pieces each, where pieces of one cost make the shortest step only if they can be had.
// Pure.
#pragma once

#include <vector>

#include <drivetrain/schedule.h>

namespace drivetrain {

// Moves boundaries of `first`, one or several neighbours at a time, as long as a step of `orders` gets shorter: the
// computations of all stages, where forward takes a piece's cost and backward twice that. The same result for the same
// arguments; the search is cut short after a fraction of a second.
std::vector<int64_t> shorter_cuts(const Schedule& schedule, const std::vector<Program>& orders, int64_t micro_batches,
                                  const std::vector<double>& unit_costs, std::vector<int64_t> first);

}  // namespace drivetrain
