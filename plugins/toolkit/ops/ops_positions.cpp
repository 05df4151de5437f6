// Rotary tables by positions of the whole sequence.
#include <drivetrain/toolkit/ops/ops.h>

#include <ATen/ops/cat.h>

#include <algorithm>
#include <bit>

namespace drivetrain::ops {
namespace {

constexpr size_t kMostCuts = 64;  // cuts that depend on a batch's documents come in any number

RotaryTable rotary_rows(const RotaryTable& table, const RowRange& range) {
  return {table.cos.narrow(0, range.first, range.count), table.sin.narrow(0, range.first, range.count)};
}

int64_t end_of(const std::vector<RowRange>& positions) {
  int64_t end = 0;
  for (const RowRange& range : positions) end = std::max(end, range.first + range.count);
  return end;
}

}  // namespace

RotaryTable RotaryPositions::table(const StepContext& ctx, const at::Tensor& like) {
  const at::Tensor& ids_BS = ctx.batch().position_ids_BS;
  if (!ids_BS.defined()) return table(ctx.positions(), like);
  reach(end_of(ctx.positions()), like);  // no position is behind its place in the row
  const bool known = ids_.is_same(ids_BS) && of_ids_.cos.scalar_type() == longest_.cos.scalar_type() &&
                     of_ids_.cos.device() == longest_.cos.device();
  if (known && !ids_BS.is_cuda()) return of_ids_;
  ids_ = ids_BS;
  const at::Tensor flat = ids_BS.flatten();
  return of_ids_ = {longest_.cos.index_select(0, flat), longest_.sin.index_select(0, flat)};
}

RotaryTable RotaryPositions::table(const std::vector<RowRange>& positions, const at::Tensor& like) {
  reach(end_of(positions), like);
  if (positions.size() == 1) return rotary_rows(longest_, positions.front());
  for (const Cut& cut : cuts_)
    if (cut.positions == positions) return cut.table;
  if (cuts_.size() >= kMostCuts) cuts_.clear();
  Tensors cos, sin;
  for (const RowRange& range : positions) {
    const RotaryTable part = rotary_rows(longest_, range);
    cos.push_back(part.cos), sin.push_back(part.sin);
  }
  return cuts_.emplace_back(Cut{positions, {at::cat(cos), at::cat(sin)}}).table;
}

void RotaryPositions::reach(int64_t end, const at::Tensor& like) {
  const at::ScalarType dtype = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor& old = longest_.cos;
  const bool same_kind = old.defined() && old.scalar_type() == dtype && old.device() == like.device();
  if (same_kind && old.size(0) >= end) return;
  if (!same_kind) cuts_.clear();
  // A text that grows token by token asks for a new table now and then only.
  const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(end)));
  longest_ = rotary_table(frequencies_, 0, room, like, scale_);
}

}  // namespace drivetrain::ops
