// Where the elements that a rank holds of a parameter stand in the whole parameter: the layout's cuts and its flat
// range as a few rectangles, which values are drawn in, read into and gathered from. No state; any thread.
//
// Both tensors are seen as matrices: dimension 0 are rows, all others together columns.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <drivetrain/layout.h>
#include <drivetrain/mesh.h>

namespace drivetrain {

struct SliceBox {
  int64_t row = 0, column = 0;    // of the whole parameter
  int64_t rows = 0, columns = 0;  // how many
  int64_t held = 0;               // its first element in the flat range that the layout names
};

struct SliceMap {
  int64_t columns = 1;          // of the whole parameter
  int64_t local_columns = 1;    // of the local slice
  int64_t held = 0;             // elements in the flat range, padding among them
  std::vector<SliceBox> boxes;  // in order of rows; padding is in none

  int64_t elements() const;  // in boxes
  bool padded() const { return elements() < held; }
  // The box as a view [rows, columns] of `value`, the flat range in one dimension; of `whole`, contiguous and of the
  // global shape.
  at::Tensor in_held(const SliceBox& box, const at::Tensor& value) const;
  at::Tensor in_whole(const SliceBox& box, const at::Tensor& whole) const;
};

// Throws Error(internal) if the flat range does not fit the local slice, or a dimension beyond the second is cut.
SliceMap slice_map(const Layout& layout, const Mesh& mesh);

}  // namespace drivetrain
