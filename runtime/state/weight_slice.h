// Cutting a rank's slice out of foreign tensors. Main thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include <drivetrain/layout.h>
#include <drivetrain/mesh.h>

#include "state/slice_boxes.h"

namespace drivetrain {

// A foreign tensor turned into our orientation: it supplies rows [first, first + rows.size(0)) of ours.
struct ForeignRows {
  at::Tensor rows;
  int64_t first = 0;
};

// value (flat, as long as the layout's range) := this rank's part of what is read, stacked along dimension 0; padding
// is zero.
class SliceReader {
 public:
  SliceReader(const Layout& layout, const Mesh& mesh, const at::Tensor& value);

  // The smallest range of rows [from, until) that holds all of [first, last) that this rank has something of; empty:
  // from == until.
  std::pair<int64_t, int64_t> rows_within(int64_t first, int64_t last) const;
  void read(const ForeignRows& part) const;

 private:
  SliceMap map_;
  at::Tensor flat_;
};

}  // namespace drivetrain
