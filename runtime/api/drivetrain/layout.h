// Which mesh axes split which dimension of a tensor:
// everything that reductions, norms, checkpoints and the optimizer need to know about a strategy. Value semantics.
//
// A tensor of global shape G is first cut per dimension (tensor parallelism), giving the local slice;
// then a flat range of the row-major local slice may be kept on this rank (ZeRO, FSDP). Axes not named hold copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(layout)

namespace drivetrain {

class Mesh;

struct DimSplit {
  std::vector<std::string> axes;  // that split this dimension, outermost first; empty: whole
  std::vector<int64_t> blocks;    // fused blocks (q, k, v in one matrix), each split evenly; empty: one block
  // The dimension (one block) is cut as if it had so many rows, so that every piece has one size; 0: as it is.
  // Rows beyond the global shape stand last on their rank; values and gradients of them are zero, and no file has them.
  int64_t padded_to = 0;
  bool operator==(const DimSplit&) const = default;
};

struct DRIVETRAIN_API Layout {
  std::vector<int64_t> global_shape;      // without padding
  std::vector<DimSplit> dims;             // one per dimension, or empty: nothing split
  std::vector<std::string> partial_over;  // gradients are partial sums over these axes
  int64_t begin = 0, end = -1;            // flat range of the row-major local slice kept here; end -1: all of it
  std::vector<std::string> flat_axes;     // the axes that share the flat range

  static Layout whole(std::vector<int64_t> shape);
  int64_t global_numel() const;
  std::vector<int64_t> local_shape(const Mesh& mesh) const;  // after the per-dimension cut, with padding
  int64_t local_numel(const Mesh& mesh) const;
  // Rows [first, first + count) of the global dimension that this rank holds, one range per fused block,
  // in local order, without padding.
  struct Range {
    int64_t first, count;
  };
  std::vector<Range> ranges(size_t dim, const Mesh& mesh) const;
  bool operator==(const Layout&) const = default;
};

}  // namespace drivetrain
