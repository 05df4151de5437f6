// A permutation of [0, size) as a function: no table, any place at once. It is a Feistel network (Luby and Rackoff
// 1988) over two digits of about the same size (Black and Rogaway 2002), whose round function is Philox; numbers beyond
// `size` are mapped again until one is below it.
#pragma once

#include <cstdint>

namespace drivetrain::megatron {

// What makes one permutation another: the run's seed, the part (train, validation), the member of the blend, the epoch.
struct PermutationKey {
  uint64_t seed = 0;
  uint32_t part = 0, member = 0, epoch = 0;
};

// `at` of [0, size), size at least 1. Thread: any. Throws nothing.
int64_t permuted(int64_t at, int64_t size, const PermutationKey& key);

}  // namespace drivetrain::megatron
