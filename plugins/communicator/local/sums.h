// Sums over ranks by one fixed binary tree, element by element.
//
// Neighbours are added first, then neighbouring pairs, and so on; who has no neighbour moves up as it is. With 5 ranks:
// ((0 + 1) + (2 + 3)) + 4. So 2^k neighbouring ranks are always a subtree, and nothing depends on where an element
// lies. bfloat16 and float16 are added in float32 through the whole tree and rounded once at the end; float32, float64
// and integers (which wrap) are added as they are, so for those a sum of sums over neighbouring 2^k ranks has the bits
// of the whole sum. Thread: any.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace drivetrain::local {

// Integers of 8 to 64 bits, bfloat16, float16, float32, float64.
bool can_sum(at::ScalarType dtype);

// out[0, count) := tree sum of sources[0..ranks)[0, count). `out` may be one of the sources.
void tree_sum(at::ScalarType dtype, void* out, const char* const* sources, int64_t ranks, int64_t count);
// The same into each of outs[0..results), which may be the sources. `for_peers`: only other ranks read the result.
void tree_sum(at::ScalarType dtype, char* const* outs, int64_t results, const char* const* sources, int64_t ranks,
              int64_t count, bool for_peers = false);

}  // namespace drivetrain::local
