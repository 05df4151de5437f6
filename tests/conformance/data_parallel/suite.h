// What every implementation of data_parallel must do, whatever it shares out: parameters whole and right inside the
// spans of their units, gradients that are the sum over all rows, each element updated exactly once per set of ranks
// that share it.
//
// How a rank is driven stands in rank.h. Values are exact, so there is no tolerance. With kit/poisoned_memory.h in the
// program, storage that was freed is NaN.
#pragma once

#include <drivetrain/testkit/data_parallel/rank.h>
#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

Suite data_parallel_suite();

// One trial, on as many threads as it has ranks.
void check_data_parallel(const DataParallelTrial& trial);

// The same with frozen parameters of two sizes: neither memory nor plan of gradients and masters may know which.
void check_frozen(DataParallelTrial trial);

}  // namespace drivetrain::test
