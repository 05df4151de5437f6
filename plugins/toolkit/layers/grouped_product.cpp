#include <drivetrain/toolkit/layers/grouped_product.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/few_rows.h>
#include <drivetrain/toolkit/layers/short_product.h>

#include "group_kernel.h"

namespace drivetrain {
namespace {

// The largest block of a group that one thread computes. Kernels of 16 bits and of groups pack rows once per block, so
// blocks are wide. LibTorch's products with few rows are fastest where the part of the weight that they pack, or that
// is widened for them, stays in the caches: by 5 to 10 % (64 rows, AMD Zen).
constexpr int64_t kBlockRows = 512, kPackedColumns = 2048, kCachedColumns = 256;

bool of_16_bits(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

// Rows [first, first + rows) of group `group`, results [column, column + columns).
struct GroupBlock {
  int64_t group, first, rows, column, columns;
};

std::vector<GroupBlock> blocks_of_groups(const RowGroups& groups, int64_t columns, int64_t most_columns) {
  const std::vector<int64_t>& bounds = groups.bounds();
  std::vector<GroupBlock> blocks;
  for (int64_t e = 0; e < groups.size(); ++e)
    for (int64_t row = bounds[size_t(e)]; row < bounds[size_t(e) + 1]; row += kBlockRows)
      for (int64_t column = 0; column < columns; column += most_columns)
        blocks.push_back({e, row, std::min(kBlockRows, bounds[size_t(e) + 1] - row), column,
                          std::min(most_columns, columns - column)});
  return blocks;
}

int64_t groups_with_rows(const RowGroups& groups) {
  const std::vector<int64_t>& bounds = groups.bounds();
  int64_t number = 0;
  for (size_t e = 1; e < bounds.size(); ++e) number += bounds[e] > bounds[e - 1];
  return number;
}

// A thread takes the next block when it has finished one: groups are of unequal sizes. Inside, LibTorch's products find
// themselves in a parallel region and use this thread alone, as they do where there is only one.
void for_each_block(const std::vector<GroupBlock>& blocks, const std::function<void(const GroupBlock&)>& work) {
  if (blocks.empty()) return;
  std::atomic<size_t> next{0};
  at::parallel_for(0, std::max(at::get_num_threads(), 1), 1, [&](int64_t, int64_t) {
    const at::AutoGradMode off(false);  // of the thread
    for (size_t i = next++; i < blocks.size(); i = next++) work(blocks[i]);
  });
}

void check_rows(const RowGroups& groups, int64_t rows) {
  if (groups.bounds().back() <= rows) return;
  throw Error(ErrorCode::plugin, "grouped product: the groups have " + std::to_string(groups.bounds().back()) +
                                     " rows, but there are " + std::to_string(rows) +
                                     "; the counts have to be those by which the rows were sorted");
}

// As the kernel of groups reads it: rows of dense elements, and where they are.
struct ReadRows {
  explicit ReadRows(const GroupedRows& rows) : x(rows.x.stride(1) == 1 ? rows.x : rows.x.contiguous()) {
    if (rows.index.defined()) index = rows.index.contiguous();
  }
  StoredRows part(int64_t first, int64_t count, int64_t column, int64_t columns, bool transposed) const {
    const at::Tensor cut = x.narrow(1, column, columns);
    if (index.defined()) return {cut, index.const_data_ptr<int64_t>() + first, count, transposed};
    return {cut.narrow(0, first, count), nullptr, count, transposed};
  }
  const at::Tensor x;
  at::Tensor index;
};

// y [M, N] = a [M, K] b [K, N] on this thread.
void product_of_block(at::Tensor y, const at::Tensor& a, const at::Tensor& b) {
  if (b.stride(0) == 1) {
    if (auto few = few_rows_product(a, b.t(), {})) return void(y.copy_(*few));
  }
  if (short_product_into(y, a, b)) return;
  if (of_16_bits(a.scalar_type()))
    y.copy_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));
  else
    at::mm_out(y, a, b);
}

at::Tensor grouped_by_kernel(const GroupedRows& rows, const at::Tensor& w_EKN, const RowGroups& groups) {
  const bool transposed = w_EKN.stride(2) != 1;  // groups lie as [N, K]
  const int64_t K = w_EKN.size(1), N = w_EKN.size(2);
  const ReadRows x(rows);
  at::Tensor y = at::empty({rows.size(), N}, x.x.options());
  y.slice(0, groups.bounds().back()).zero_();
  for_each_block(blocks_of_groups(groups, N, group_columns(groups_with_rows(groups))), [&](const GroupBlock& b) {
    const at::Tensor part = w_EKN.select(0, b.group).narrow(1, b.column, b.columns);
    group_product(y.narrow(0, b.first, b.rows).narrow(1, b.column, b.columns), false, false,
                  x.part(b.first, b.rows, 0, K, false),
                  {transposed ? part.t() : part, nullptr, transposed ? b.columns : K, transposed});
  });
  return y;
}

// With fewer rows than groups, as when a text grows token by token, nothing is worth packing.
bool by_kernel(const GroupedRows& rows, const at::Tensor& w_EKN, const RowGroups& groups) {
  return multiplies_groups(rows.x.scalar_type()) && rows.x.scalar_type() == w_EKN.scalar_type() && w_EKN.size(1) > 0 &&
         rows.size() >= groups.size();
}

at::Tensor grouped_on_cpu(const GroupedRows& rows, const at::Tensor& w_EKN, const RowGroups& groups) {
  if (by_kernel(rows, w_EKN, groups)) return grouped_by_kernel(rows, w_EKN, groups);
  const at::Tensor x = rows.dense();
  const int64_t N = w_EKN.size(2), used = groups.bounds().back();
  at::Tensor y = at::empty({x.size(0), N}, x.options());
  y.narrow(0, used, x.size(0) - used).zero_();
  const bool packed = multiplies_short(x.scalar_type());
  for_each_block(blocks_of_groups(groups, N, packed ? kPackedColumns : kCachedColumns), [&](const GroupBlock& b) {
    product_of_block(y.narrow(0, b.first, b.rows).narrow(1, b.column, b.columns), x.narrow(0, b.first, b.rows),
                     w_EKN.select(0, b.group).narrow(1, b.column, b.columns));
  });
  return y;
}

// What at::_grouped_mm takes on CUDA: bfloat16 with rows of whole 16 bytes.
bool groups_on_device(const at::Tensor& x, int64_t columns) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && x.size(0) > 0 && x.size(1) % 8 == 0 && columns % 8 == 0 &&
         x.size(0) <= std::numeric_limits<int32_t>::max();
}

at::Tensor grouped_on_device(const at::Tensor& x, const at::Tensor& w_EKN, const RowGroups& groups) {
  const at::Tensor y = at::_grouped_mm(x.contiguous(), w_EKN, groups.ends());
  const at::Tensor row = at::arange(x.size(0), groups.ends().options());
  return y.masked_fill(row.ge(groups.ends().slice(0, groups.size() - 1)).unsqueeze(1), 0);  // nobody's
}

at::Tensor grouped_one_by_one(const at::Tensor& x, const at::Tensor& w_EKN, const RowGroups& groups) {
  at::Tensor y = at::zeros({x.size(0), w_EKN.size(2)}, x.options());
  const std::vector<int64_t>& bounds = groups.bounds();
  for (int64_t e = 0; e < groups.size(); ++e) {
    const int64_t first = bounds[size_t(e)], rows = bounds[size_t(e) + 1] - first;
    at::Tensor y_e = y.narrow(0, first, rows);
    if (rows > 0) at::mm_out(y_e, x.narrow(0, first, rows), w_EKN.select(0, e));
  }
  return y;
}

at::Tensor grouped(const GroupedRows& rows, const at::Tensor& w_EKN, const RowGroups& groups) {
  const at::AutoGradMode off(false);
  if (groups.size() > 0 && groups_on_device(rows.x, w_EKN.size(2)))
    return grouped_on_device(rows.dense(), w_EKN, groups);
  check_rows(groups, rows.size());
  return rows.x.is_cpu() ? grouped_on_cpu(rows, w_EKN, groups) : grouped_one_by_one(rows.dense(), w_EKN, groups);
}

at::Tensor by_group(const at::Tensor& weight, const RowGroups& groups) {
  return weight.detach().view({groups.size(), weight.size(0) / std::max<int64_t>(groups.size(), 1), weight.size(1)});
}

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

}  // namespace

RowGroups::RowGroups(const at::Tensor& counts)
    : parts_(counts.dim() == 2 ? counts : at::Tensor()), counts_(counts.dim() == 2 ? counts.sum(1) : counts) {}

std::vector<int64_t> RowGroups::part_bounds(int64_t e) const {
  std::vector<int64_t> bounds = {this->bounds()[size_t(e)]};
  const int64_t* const rows = parts_.const_data_ptr<int64_t>() + e * parts();
  for (int64_t p = 0; p < parts(); ++p) bounds.push_back(bounds.back() + rows[p]);
  return bounds;
}

const std::vector<int64_t>& RowGroups::bounds() const {
  if (bounds_.empty()) {
    const at::Tensor counts = counts_.to(at::kCPU).contiguous();
    bounds_.push_back(0);
    for (int64_t e = 0; e < size(); ++e) bounds_.push_back(bounds_.back() + counts.const_data_ptr<int64_t>()[e]);
  }
  return bounds_;
}

const at::Tensor& RowGroups::ends() const {
  if (!ends_.defined()) ends_ = counts_.cumsum(0, at::kInt);
  return ends_;
}

int64_t GroupedRows::size() const { return index.defined() ? index.size(0) : x.size(0); }
at::Tensor GroupedRows::dense() const { return index.defined() ? at::index_select(x, 0, index) : x; }

at::Tensor grouped_product(const GroupedRows& x, const at::Tensor& weight, const RowGroups& groups) {
  return grouped(x, by_group(weight, groups).transpose(1, 2), groups);
}

at::Tensor grouped_product_backward(const GroupedRows& dy, const at::Tensor& weight, const RowGroups& groups) {
  return grouped(dy, by_group(weight, groups), groups);
}

namespace {

// Rows of a weight that a thread computes, where it keeps sums of parts beside them: both stay in a second cache.
constexpr int64_t kRowsOfParts = 64;

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

// sum := the sum over the parts of a block's rows between `bounds`, by the tree of kernels/collective/tree_sum.h; at
// least one part has rows.
template <class Accumulate>
void sum_of_parts(at::Tensor sum, GroupBlock block, c10::ArrayRef<int64_t> bounds, const Accumulate& accumulate) {
  const size_t parts = bounds.size() - 1;
  if (parts == 1) {
    block.first = bounds[0], block.rows = bounds[1] - bounds[0];
    return accumulate(sum, false, block);
  }
  size_t half = 1;
  while (2 * half < parts) half *= 2;
  const c10::ArrayRef<int64_t> left = bounds.slice(0, half + 1), right = bounds.slice(half);
  if (left.front() == left.back()) return sum_of_parts(sum, block, right, accumulate);
  sum_of_parts(sum, block, left, accumulate);
  if (right.front() == right.back()) return;
  const at::Tensor other = at::empty(sum.sizes(), sum.options());
  sum_of_parts(other, block, right, accumulate);
  sum.add_(other);
}

// Calls accumulate(part, add, block) for the part of the weights that each block of rows has sums for.
template <class Accumulate>
void for_weights(at::Tensor slot, bool add, const RowGroups& groups, const Accumulate& accumulate) {
  const bool in_parts = groups.parts() > 1 && !add;
  const auto work = [&](const GroupBlock& b) {
    at::Tensor part = slot.select(0, b.group).narrow(0, b.column, b.columns);
    if (b.rows == 0) {
      if (!add) part.zero_();
    } else if (!in_parts) {
      accumulate(part, add, b);
    } else if (of_16_bits(part.scalar_type())) {
      const at::Tensor sum = at::empty(part.sizes(), part.options().dtype(at::kFloat));
      sum_of_parts(sum, b, groups.part_bounds(b.group), accumulate);
      part.copy_(sum);
    } else {
      sum_of_parts(part, b, groups.part_bounds(b.group), accumulate);
    }
  };
  const std::vector<GroupBlock> blocks = blocks_of_weights(groups, slot.size(1), in_parts ? kRowsOfParts : kBlockRows);
  if (slot.is_cpu())
    for_each_block(blocks, work);
  else
    for (const GroupBlock& b : blocks) work(b);
}

}  // namespace

void accumulate_grouped_weight_grad(Param& weight, const GroupedRows& dy_rows, const GroupedRows& x_rows,
                                    const RowGroups& groups) {
  const at::AutoGradMode off(false);
  auto [whole, adds] = weight.write_grad();
  const bool add = adds;
  at::Tensor slot = by_group(whole, groups);
  const at::ScalarType type = x_rows.x.scalar_type();
  if (x_rows.x.is_cpu() && multiplies_groups(type) && dy_rows.x.scalar_type() == type &&
      slot.scalar_type() != at::kDouble) {
    check_rows(groups, x_rows.size());
    const ReadRows dy(dy_rows), x(x_rows);
    return for_weights(slot, add, groups, [&](const at::Tensor& part, bool add_sums, const GroupBlock& b) {
      group_product(part, add_sums, groups.parts() == 1, dy.part(b.first, b.rows, b.column, b.columns, true),
                    x.part(b.first, b.rows, 0, slot.size(2), false));
    });
  }
  const at::Tensor dy = dy_rows.dense(), x = x_rows.dense();
  if (groups.size() > 0 && slot.scalar_type() == at::kBFloat16 && groups_on_device(x, dy.size(1))) {
    const at::Tensor product = at::_grouped_mm(dy.contiguous().t(), x.contiguous(), groups.ends());
    add ? slot.add_(product) : slot.copy_(product);
    return;
  }
  check_rows(groups, x.size(0));
  for_weights(slot, add, groups, [&](const at::Tensor& part, bool add_sums, const GroupBlock& b) {
    accumulate_product(part, add_sums, dy.narrow(0, b.first, b.rows).narrow(1, b.column, b.columns).t(),
                       x.narrow(0, b.first, b.rows));
  });
}

}  // namespace drivetrain
