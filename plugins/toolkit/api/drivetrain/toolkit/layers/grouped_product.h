// Products of rows that are sorted by group with one matrix per group: the experts of a mixture.
//
// On the CPU threads take whole groups, or blocks of large ones, one after another; an element of a result is computed
// by one thread, in an order that depends on the shapes alone. So results do not depend on the number of threads. Types
// that short_product.h multiplies go there and are rounded once. Others of float32 and 16 bits go, where there is AVX2,
// to a kernel for few rows with large weights (kernels/product/group.h), results outside of training from as many rows
// as groups on. A row has the same bits there whatever the other rows are, by AVX512 those of AVX2.
// On CUDA bfloat16 goes to at::_grouped_mm, whose offsets stay on the device; other types to one product per group,
// for which the host has to wait for the counts.
//
// Legend: E groups, R rows, I in, O out. Thread: main; backward on autograd's. Stream: the current one. No autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include <drivetrain/param.h>

namespace drivetrain {

// Which rows are of which group. The rows behind the last group are nobody's.
class RowGroups {
 public:
  // int64 [E], on the device of the rows. Or [E, P], on the CPU: the rows of a group come in P parts, as of P ranks,
  // and gradients of weights in float32 by that kernel are the sum of those of the parts, added by the tree of
  // kernels/collective/tree_sum.h.
  explicit RowGroups(const at::Tensor& counts);
  int64_t size() const { return counts_.size(0); }
  int64_t parts() const { return parts_.defined() ? parts_.size(1) : 1; }
  // E + 1 numbers: where the rows of each group begin, and where the last one's end. The first call waits for the
  // device.
  const std::vector<int64_t>& bounds() const;
  // Rows of the largest part of any group.
  int64_t most_of_a_part() const;
  // parts() + 1 numbers: where the rows of each part of group e begin, and where the last one's end.
  std::vector<int64_t> part_bounds(int64_t e) const;
  // int32 [E], on the device: where the rows of each group end. Of fewer than 2^31 rows.
  const at::Tensor& ends() const;

 private:
  const at::Tensor parts_, counts_;
  mutable std::vector<int64_t> bounds_;
  mutable at::Tensor ends_;
};

// R rows: those of x, or x[index[r]], which are then read where they lie if there is a kernel that can.
struct GroupedRows {
  GroupedRows(at::Tensor rows, at::Tensor which = {}) : x(std::move(rows)), index(std::move(which)) {}
  int64_t size() const;
  at::Tensor dense() const;  // [R, columns]
  const at::Tensor x;
  const at::Tensor index;  // int64 [R], on the device of x
};

// `trains` false: with fewer rows than groups a row is computed faster, with bits that depend on how many there are.
// Row r of group e: y_r = W_e x_r; grouped_product_backward: dx_r = dy_r W_e. Rows of nobody are zeros. x [R, I],
// weight [E O, I], dy [R, O].
at::Tensor grouped_product(const GroupedRows& x, const at::Tensor& weight, const RowGroups& groups, bool trains = true);
at::Tensor grouped_product_backward(const GroupedRows& dy, const at::Tensor& weight, const RowGroups& groups);

// Overwrites the slot of `weight` [E O, I] with dy_e^T x_e of each group or adds to it, as Param::write_grad says: a
// group without rows becomes zeros, or stays. The sums are float32, or the slot's type if that is wider. There is no
// temporary of the weight's size, but on CUDA for a slot of bfloat16. Parts are summed on their own only where the slot
// is overwritten: what is added to earlier micro-batches has another order of sums anyway.
void accumulate_grouped_weight_grad(Param& weight, const GroupedRows& dy, const GroupedRows& x,
                                    const RowGroups& groups);

}  // namespace drivetrain
