#include "state/weight_slice.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

using DimRanges = std::vector<std::vector<Layout::Range>>;  // per dimension, what this rank holds

// to := the ranges of dimensions `dim` and up of `from`.
void copy_box(const at::Tensor& from, const at::Tensor& to, const DimRanges& ranges, size_t dim) {
  if (dim == ranges.size()) {
    to.copy_(from);
    return;
  }
  const int64_t d = static_cast<int64_t>(dim);
  int64_t local = 0;
  for (const Layout::Range& range : ranges[dim]) {
    copy_box(from.narrow(d, range.first, range.count), to.narrow(d, local, range.count), ranges, dim + 1);
    local += range.count;
  }
}

// to := local rows [first, first + to.size(0)).
void copy_rows(const std::vector<ForeignRows>& parts, const DimRanges& ranges, int64_t first, const at::Tensor& to) {
  int64_t local = 0;
  for (const Layout::Range& range : ranges[0]) {
    const int64_t shift = range.first - local;  // global row = local row + shift
    const int64_t from = std::max(first, local) + shift;
    const int64_t until = std::min(first + to.size(0), local + range.count) + shift;
    for (const ForeignRows& part : parts) {
      const int64_t begin = std::max(from, part.first);
      const int64_t end = std::min(until, part.first + part.rows.size(0));
      if (begin >= end) continue;
      copy_box(part.rows.narrow(0, begin - part.first, end - begin), to.narrow(0, begin - shift - first, end - begin),
               ranges, 1);
    }
    local += range.count;
  }
}

}  // namespace

void read_slice(const std::vector<ForeignRows>& parts, const Layout& layout, const Mesh& mesh,
                const at::Tensor& value) {
  std::vector<int64_t> shape = layout.local_shape(mesh);
  const int64_t numel = layout.local_numel(mesh);
  const int64_t end = layout.end < 0 ? numel : layout.end;
  if (layout.begin > end || end > numel || value.numel() != end - layout.begin) {
    throw fail(ErrorCode::internal, "a layout's flat range [", layout.begin, ", ", end, ") does not fit its tensor of ",
               value.numel(), " elements or the local slice of ", numel);
  }
  if (value.numel() == 0) return;

  DimRanges ranges;
  for (size_t dim = 0; dim < shape.size(); ++dim) ranges.push_back(layout.ranges(dim, mesh));
  const int64_t per_row = numel / shape[0];
  const int64_t first = layout.begin / per_row, last = (end + per_row - 1) / per_row;
  shape[0] = last - first;
  // A flat range may begin and end inside a row; then whole rows are read beside the target.
  const at::Tensor flat = value.detach().view({-1});
  const bool ragged = layout.begin % per_row != 0 || end % per_row != 0;
  const at::Tensor rows = ragged ? at::empty(shape, at::TensorOptions().dtype(flat.scalar_type())) : flat.view(shape);
  copy_rows(parts, ranges, first, rows);
  if (ragged) flat.copy_(rows.view({-1}).narrow(0, layout.begin - first * per_row, flat.numel()));
}

}  // namespace drivetrain
