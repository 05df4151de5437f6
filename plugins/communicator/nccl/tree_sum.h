// Sums over ranks by the fixed binary tree of Communicator, on the device.
//
// Neighbours are added first, then neighbouring pairs, and so on; who has no neighbour moves up as it is. With 5 ranks:
// ((0 + 1) + (2 + 3)) + 4. bfloat16 and float16 are added in float32 through the whole tree and rounded once at the
// end; integers wrap. The bits are those of communicator/local. Nothing depends on where an element lies, so a call may
// be cut into pieces. Bound by memory: ranks + 1 elements moved per element of the result.
#pragma once

#include <cstdint>

namespace drivetrain::nccl {

enum class SumType { none, f32, f64, bf16, f16, i8, i16, i32, i64 };  // whether integers are signed does not matter

// One slice of each of `ranks` ranks: this rank's own where it lies, the others' packed in rank order without this
// one's.
struct TreeSum {
  SumType type = SumType::none;
  const void* own = nullptr;     // [count]
  const void* others = nullptr;  // [ranks - 1] slices, `stride` elements apart
  int64_t stride = 0;
  int ranks = 1, me = 0;
  void* out = nullptr;  // [count]; may be `own`
  int64_t count = 0;
};

constexpr int kMostTreeRanks = 65536;

// Enqueued on `stream`; returns a cudaError_t, 0 if launched. May be captured into a graph.
int tree_sum(const TreeSum& sum, void* stream);

}  // namespace drivetrain::nccl
