// Cutting a rank's slice out of foreign tensors, a piece of the file at a time, so that memory for the whole of one is
// never asked for. Main thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include <drivetrain/layout.h>
#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/layout/slice_boxes.h>

#include "state/weight_source.h"

namespace drivetrain {

// value (flat, as long as the layout's range) := this rank's part of what is read; padding is zero.
class SliceReader {
 public:
  SliceReader(const Layout& layout, const Mesh& mesh, const at::Tensor& value);

  // Rows [ours, ours + count) of the parameter are rows [theirs, theirs + count) of a tensor.
  struct Rows {
    int64_t ours = 0, theirs = 0, count = 0;
  };
  // `transposed`: the tensor is a matrix whose columns are our rows.
  void read(const WeightSource& file, const std::string& name, bool transposed, const Rows& rows) const;
  // Whether this rank has something of our rows [first, first + count).
  bool has_of(int64_t first, int64_t count) const;
  // Our rows [first, first + count) := one row, of all columns.
  void repeat(const at::Tensor& row, int64_t first, int64_t count) const;

 private:
  struct Range {
    int64_t from = 0, until = 0;
  };
  // The smallest ranges that hold all of our rows [first, last), of our columns, that this rank has something of.
  Range rows_within(int64_t first, int64_t last) const;
  Range columns() const;
  // Values in our orientation, whose first stands at (row, column) of ours.
  void take(const at::Tensor& values, int64_t row, int64_t column) const;

  SliceMap map_;
  at::Tensor flat_;
};

}  // namespace drivetrain
