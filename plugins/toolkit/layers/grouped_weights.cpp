// Gradients of grouped weights.
#include <drivetrain/toolkit/layers/grouped_product.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include <drivetrain/toolkit/layers/short_product.h>

#include "group_blocks.h"
#include "kernels/product/group.h"

namespace drivetrain {
namespace {

// slot [M, N] := or += a [M, K] b [K, N], in sums of at least float32.
void accumulate_product(at::Tensor slot, bool add, const at::Tensor& a, const at::Tensor& b) {
  if (a.is_cpu() && add_short_product(slot, add, a, b)) return;
  const at::ScalarType type = slot.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (a.is_cuda() && of_16_bits(a.scalar_type()) && slot.scalar_type() == at::kFloat) {
    if (add)
      at::addmm_out(slot, slot, a, b, at::kFloat);
    else
      at::mm_out(slot, a, b, at::kFloat);
  } else if (slot.scalar_type() != type) {
    const at::Tensor sums = at::mm(a.to(type), b.to(type));
    add ? slot.add_(sums) : slot.copy_(sums);
  } else if (add) {
    slot.addmm_(a.to(type), b.to(type));
  } else {
    at::mm_out(slot, a.to(type), b.to(type));
  }
}

// All rows of a group: they are the summands.
std::vector<GroupBlock> blocks_of_weights(const RowGroups& groups, int64_t columns, int64_t most) {
  const std::vector<int64_t>& bounds = groups.bounds();
  std::vector<GroupBlock> blocks;
  for (int64_t e = 0; e < groups.size(); ++e)
    for (int64_t o = 0; o < columns; o += most)
      blocks.push_back(
          {e, bounds[size_t(e)], bounds[size_t(e) + 1] - bounds[size_t(e)], o, std::min(most, columns - o)});
  return blocks;
}

void work_on(const at::Tensor& slot, const std::vector<GroupBlock>& blocks,
             const std::function<void(const GroupBlock&)>& work) {
  if (slot.is_cpu()) return for_each_block(blocks, work);
  for (const GroupBlock& b : blocks) work(b);
}

at::Tensor part_of(const at::Tensor& slot, const GroupBlock& b) {
  return slot.select(0, b.group).narrow(0, b.column, b.columns);
}

// The gradient by the kernel of groups.
class ByKernel {
 public:
  ByKernel(const GroupedRows& dy, const GroupedRows& x) : dy_(dy), x_(x) {}

  void whole(const at::Tensor& part, bool add, const GroupBlock& b) const { product(part, add, true, b); }

  // sum := the sum over parts, by the tree of kernels/collective/tree_sum.h; one of them at least has rows.
  void sum_of_parts(const at::Tensor& sum, const GroupBlock& block, at::IntArrayRef bounds) const {
    const size_t parts = bounds.size() - 1;
    if (parts == 1) return product(sum, false, false, rows_of(block, bounds));
    size_t half = 1;
    while (2 * half < parts) half *= 2;
    const at::IntArrayRef left = bounds.slice(0, half + 1), right = bounds.slice(half);
    if (left.front() == left.back()) return sum_of_parts(sum, block, right);
    sum_of_parts(sum, block, left);
    if (right.front() == right.back()) return;
    if (adds_as_one(right)) return product(sum, true, false, rows_of(block, right));
    const at::Tensor other = at::empty(sum.sizes(), sum.options());
    sum_of_parts(other, block, right);
    sum.add_(other);
  }

  // A part whose product may be added to what is there: the kernel forms its sum first.
  static bool adds_as_one(at::IntArrayRef bounds) {
    return bounds.size() == 2 && bounds[1] - bounds[0] <= kernels::kGroupSummands;
  }

 private:
  static GroupBlock rows_of(GroupBlock block, at::IntArrayRef bounds) {
    block.first = bounds.front(), block.rows = bounds.back() - bounds.front();
    return block;
  }
  void product(const at::Tensor& to, bool add, bool stream, const GroupBlock& b) const {
    group_product(to, add, stream, dy_.part(b.first, b.rows, b.column, b.columns, true),
                  x_.part(b.first, b.rows, 0, x_.x.size(1), false));
  }
  const ReadRows dy_, x_;
};

void by_kernel(const at::Tensor& slot, bool add, const ByKernel& gradient, const RowGroups& groups) {
  work_on(slot, blocks_of_weights(groups, slot.size(1), kBlockRows), [&](const GroupBlock& b) {
    const at::Tensor part = part_of(slot, b);
    if (b.rows > 0)
      gradient.whole(part, add, b);
    else if (!add)
      part.zero_();
  });
}

// Sums of parts stand beside each other where there are more than two, or one of many rows: then blocks are smaller, so
// that they stay in a second cache.
void in_parts(const at::Tensor& slot, const ByKernel& gradient, const RowGroups& groups) {
  constexpr int64_t kRowsBeside = 128;
  const bool alone = groups.parts() == 2 && groups.most_of_a_part() <= kernels::kGroupSummands;
  work_on(slot, blocks_of_weights(groups, slot.size(1), alone ? kBlockRows : kRowsBeside), [&](const GroupBlock& b) {
    if (b.rows == 0) return void(part_of(slot, b).zero_());
    gradient.sum_of_parts(part_of(slot, b), b, groups.part_bounds(b.group));
  });
}

}  // namespace

void accumulate_grouped_weight_grad(Param& weight, const GroupedRows& dy_rows, const GroupedRows& x_rows,
                                    const RowGroups& groups) {
  const at::AutoGradMode off(false);
  const auto [whole, add] = weight.write_grad();
  const at::Tensor slot = by_group(whole, groups);
  const at::ScalarType type = x_rows.x.scalar_type();
  if (x_rows.x.is_cpu() && multiplies_groups(type) && dy_rows.x.scalar_type() == type &&
      slot.scalar_type() != at::kDouble) {
    check_rows(groups, x_rows.size());
    const ByKernel gradient(dy_rows, x_rows);
    const bool one_sum = type != at::kFloat || slot.scalar_type() != at::kFloat || groups.parts() == 1;
    return one_sum || add ? by_kernel(slot, add, gradient, groups) : in_parts(slot, gradient, groups);
  }
  const at::Tensor dy = dy_rows.dense(), x = x_rows.dense();
  if (groups.size() > 0 && slot.scalar_type() == at::kBFloat16 && groups_on_device(x, dy.size(1))) {
    const at::Tensor product = at::_grouped_mm(dy.contiguous().t(), x.contiguous(), groups.ends());
    add ? slot.add_(product) : slot.copy_(product);
    return;
  }
  check_rows(groups, x.size(0));
  work_on(slot, blocks_of_weights(groups, slot.size(1), kBlockRows), [&, add = add](const GroupBlock& b) {
    const at::Tensor part = part_of(slot, b);
    if (b.rows > 0)
      accumulate_product(part, add, dy.narrow(0, b.first, b.rows).narrow(1, b.column, b.columns).t(),
                         x.narrow(0, b.first, b.rows));
    else if (!add)
      part.zero_();
  });
}

}  // namespace drivetrain
