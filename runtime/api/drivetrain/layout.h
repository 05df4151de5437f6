// Which mesh axes split which dimension of a tensor. Reductions, norms, checkpoints and the optimizer read this, and
// know nothing else about a strategy. Value semantics; const calls from any thread.
//
// A tensor of global shape G is first split per dimension (tensor parallelism). The result is the local slice. A rank
// may then keep only a flat range of the row-major local slice (ZeRO, FSDP). Ranks along all other axes hold copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(layout)

namespace drivetrain {

class Mesh;

struct DimSplit {
  std::vector<std::string> axes;  // the axes that split this dimension, outermost first; empty: not split
  std::vector<int64_t> blocks;    // sizes of fused blocks (q, k, v in one matrix), each split evenly; empty: one block
  // Padding: the dimension (one block) is split as if it had this many rows, so that all pieces have the same size.
  // 0: no padding. Padding rows are the last ones of their rank. Their values and gradients are zero; files omit them.
  int64_t padded_to = 0;
  bool operator==(const DimSplit&) const = default;
};

struct DRIVETRAIN_API Layout {
  std::vector<int64_t> global_shape;      // without padding
  std::vector<DimSplit> dims;             // one per dimension; empty: no dimension is split
  std::vector<std::string> partial_over;  // axes along which each rank's gradient is a partial sum; the runtime sums
  int64_t begin = 0, end = -1;            // flat range of the row-major local slice that this rank keeps; end -1: all
  std::vector<std::string> flat_axes;     // the axes over which the flat ranges are distributed

  static Layout whole(std::vector<int64_t> shape);
  int64_t global_numel() const;
  std::vector<int64_t> local_shape(const Mesh& mesh) const;  // of the local slice, with padding
  int64_t local_numel(const Mesh& mesh) const;
  // The rows of the global dimension that this rank holds: one range [first, first + count) per fused block, in local
  // order, without padding.
  struct Range {
    int64_t first, count;
  };
  std::vector<Range> ranges(size_t dim, const Mesh& mesh) const;
  bool operator==(const Layout&) const = default;
};

}  // namespace drivetrain
