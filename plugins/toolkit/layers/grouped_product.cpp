#include <drivetrain/toolkit/layers/grouped_product.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include <drivetrain/toolkit/layers/few_rows.h>
#include <drivetrain/toolkit/layers/short_product.h>

#include "group_blocks.h"

namespace drivetrain {
namespace {

// The widest blocks. LibTorch's products with few rows are fastest where the part of the weight that they pack, or that
// is widened for them, stays in the caches: by 5 to 10 % (64 rows, AMD Zen).
constexpr int64_t kPackedColumns = 2048, kCachedColumns = 256;

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
bool by_kernel(const GroupedRows& rows, const at::Tensor& w_EKN, const RowGroups& groups, bool trains) {
  return multiplies_groups(rows.x.scalar_type()) && rows.x.scalar_type() == w_EKN.scalar_type() && w_EKN.size(1) > 0 &&
         (trains || rows.size() >= groups.size());
}

at::Tensor grouped_on_cpu(const GroupedRows& rows, const at::Tensor& w_EKN, const RowGroups& groups, bool trains) {
  if (by_kernel(rows, w_EKN, groups, trains)) return grouped_by_kernel(rows, w_EKN, groups);
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

at::Tensor grouped(const GroupedRows& rows, const at::Tensor& w_EKN, const RowGroups& groups, bool trains) {
  const at::AutoGradMode off(false);
  if (groups.size() > 0 && groups_on_device(rows.x, w_EKN.size(2)))
    return grouped_on_device(rows.dense(), w_EKN, groups);
  check_rows(groups, rows.size());
  return rows.x.is_cpu() ? grouped_on_cpu(rows, w_EKN, groups, trains)
                         : grouped_one_by_one(rows.dense(), w_EKN, groups);
}

}  // namespace

at::Tensor grouped_product(const GroupedRows& x, const at::Tensor& weight, const RowGroups& groups, bool trains) {
  return grouped(x, by_group(weight, groups).transpose(1, 2), groups, trains);
}

at::Tensor grouped_product_backward(const GroupedRows& dy, const at::Tensor& weight, const RowGroups& groups) {
  return grouped(dy, by_group(weight, groups), groups, true);
}

}  // namespace drivetrain
