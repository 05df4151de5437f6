// Cutting a rank's slice out of foreign tensors. No state; any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <drivetrain/layout.h>
#include <drivetrain/mesh.h>

namespace drivetrain {

// A foreign tensor turned into our orientation: it supplies rows [first, first + rows.size(0)) of ours.
struct ForeignRows {
  at::Tensor rows;
  int64_t first = 0;
};

// value (flat, as long as the layout's range) := this rank's part of the parts stacked along dimension 0, padding zero.
void read_slice(const std::vector<ForeignRows>& parts, const Layout& layout, const Mesh& mesh, const at::Tensor& value);

}  // namespace drivetrain
