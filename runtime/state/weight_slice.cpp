#include "state/weight_slice.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // bytes of a file at a time: they stay in the cache until they are copied

// As a matrix, rows first.
at::Tensor as_rows(const at::Tensor& t) {
  if (t.dim() == 2) return t;
  return t.dim() == 1 ? t.unsqueeze(1) : t.flatten(1);
}

}  // namespace

SliceReader::SliceReader(const Layout& layout, const Mesh& mesh, const at::Tensor& value)
    : map_(slice_map(layout, mesh)), flat_(value.detach()) {
  if (value.numel() != map_.held)
    throw fail(ErrorCode::internal, "a layout's flat range [", layout.begin, ", ", layout.end,
               ") does not fit its tensor of ", value.numel(), " elements");
  if (map_.padded()) flat_.zero_();
}

void SliceReader::read(const WeightSource& file, const std::string& name, bool transposed, const Rows& rows) const {
  const std::vector<int64_t> shape = file.shape(name);
  int64_t row = 1;  // elements of the file's
  for (size_t dim = 1; dim < shape.size(); ++dim) row *= shape[dim];
  Range wanted = rows_within(rows.ours, rows.ours + rows.count);
  if (wanted.from >= wanted.until) return;
  const int64_t moved = rows.ours - rows.theirs;
  // Along the file's first dimension, which a transposed matrix has as our columns.
  if (transposed)
    wanted = columns();
  else
    wanted.from -= moved, wanted.until -= moved;
  const auto bytes = static_cast<int64_t>(c10::elementSize(file.dtype(name))) * std::max<int64_t>(row, 1);
  const int64_t piece = std::max<int64_t>(1, kPiece / bytes);
  for (int64_t at = wanted.from; at < wanted.until; at += piece) {
    const at::Tensor values = file.rows(name, at, std::min(piece, wanted.until - at));
    if (transposed)
      take(values.t().narrow(0, rows.theirs, rows.count), rows.ours, at);
    else
      take(as_rows(values), at + moved, 0);
  }
}

bool SliceReader::has_of(int64_t first, int64_t count) const {
  const Range range = rows_within(first, first + count);
  return range.from < range.until;
}

void SliceReader::repeat(const at::Tensor& row, int64_t first, int64_t count) const {
  take(row.view({1, -1}).expand({count, -1}), first, 0);
}

SliceReader::Range SliceReader::rows_within(int64_t first, int64_t last) const {
  Range range{last, first};
  for (const SliceBox& box : map_.boxes) {
    if (box.row >= last || box.row + box.rows <= first) continue;
    range.from = std::min(range.from, std::max(box.row, first));
    range.until = std::max(range.until, std::min(box.row + box.rows, last));
  }
  return range;
}

SliceReader::Range SliceReader::columns() const {
  Range range{map_.columns, 0};
  for (const SliceBox& box : map_.boxes) {
    range.from = std::min(range.from, box.column);
    range.until = std::max(range.until, box.column + box.columns);
  }
  return range;
}

void SliceReader::take(const at::Tensor& values, int64_t row, int64_t column) const {
  for (const SliceBox& box : map_.boxes) {
    const int64_t r0 = std::max(box.row, row), r1 = std::min(box.row + box.rows, row + values.size(0));
    const int64_t c0 = std::max(box.column, column), c1 = std::min(box.column + box.columns, column + values.size(1));
    if (r0 >= r1 || c0 >= c1) continue;
    const at::Tensor to = map_.in_held(box, flat_).narrow(0, r0 - box.row, r1 - r0).narrow(1, c0 - box.column, c1 - c0);
    to.copy_(values.narrow(0, r0 - row, r1 - r0).narrow(1, c0 - column, c1 - c0));
  }
}

}  // namespace drivetrain
