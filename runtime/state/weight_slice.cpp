#include "state/weight_slice.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// A foreign tensor as a matrix, rows first. Transposed ones are matrices already, so this is a view.
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

std::pair<int64_t, int64_t> SliceReader::rows_within(int64_t first, int64_t last) const {
  int64_t from = last, until = first;
  for (const SliceBox& box : map_.boxes) {
    if (box.row >= last || box.row + box.rows <= first) continue;
    from = std::min(from, std::max(box.row, first));
    until = std::max(until, std::min(box.row + box.rows, last));
  }
  return {from, std::max(from, until)};
}

void SliceReader::read(const ForeignRows& part) const {
  const at::Tensor matrix = as_rows(part.rows);
  for (const SliceBox& box : map_.boxes) {
    const int64_t from = std::max(box.row, part.first);
    const int64_t until = std::min(box.row + box.rows, part.first + part.rows.size(0));
    if (from >= until) continue;
    const at::Tensor rows = matrix.narrow(0, from - part.first, until - from);
    map_.in_held(box, flat_).narrow(0, from - box.row, until - from).copy_(rows.narrow(1, box.column, box.columns));
  }
}

}  // namespace drivetrain
