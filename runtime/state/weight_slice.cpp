#include "state/weight_slice.h"

#include <algorithm>

#include <drivetrain/error.h>

#include "state/slice_boxes.h"

namespace drivetrain {
namespace {

// A foreign tensor as a matrix, rows first. Transposed ones are matrices already, so this is a view of mapped memory.
at::Tensor as_rows(const at::Tensor& t) {
  if (t.dim() == 2) return t;
  return t.dim() == 1 ? t.unsqueeze(1) : t.flatten(1);
}

}  // namespace

void read_slice(const std::vector<ForeignRows>& parts, const Layout& layout, const Mesh& mesh,
                const at::Tensor& value) {
  const SliceMap map = slice_map(layout, mesh);
  if (value.numel() != map.held)
    throw fail(ErrorCode::internal, "a layout's flat range [", layout.begin, ", ", layout.end,
               ") does not fit its tensor of ", value.numel(), " elements");
  const at::Tensor flat = value.detach();
  if (map.padded()) flat.zero_();
  for (const SliceBox& box : map.boxes) {
    const at::Tensor to = map.in_held(box, flat);
    for (const ForeignRows& part : parts) {
      const int64_t from = std::max(box.row, part.first);
      const int64_t until = std::min(box.row + box.rows, part.first + part.rows.size(0));
      if (from >= until) continue;
      const at::Tensor rows = as_rows(part.rows).narrow(0, from - part.first, until - from);
      to.narrow(0, from - box.row, until - from).copy_(rows.narrow(1, box.column, box.columns));
    }
  }
}

}  // namespace drivetrain
