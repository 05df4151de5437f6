// Blocks of grouped products: what a thread of the CPU takes at a time, and rows as kernels read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include <drivetrain/toolkit/layers/grouped_product.h>

#include "group_kernel.h"

namespace drivetrain {

constexpr bool of_16_bits(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

// The most rows of a block. Kernels of 16 bits and of groups pack rows once per block, so blocks are wide.
constexpr int64_t kBlockRows = 512;

// Rows [first, first + rows) of group `group`, results [column, column + columns).
struct GroupBlock {
  int64_t group, first, rows, column, columns;
};
// A thread takes the next block when it has finished one: groups are of unequal sizes. Inside, LibTorch's products find
// themselves in a parallel region and use this thread alone, as they do where there is only one.
void for_each_block(const std::vector<GroupBlock>& blocks, const std::function<void(const GroupBlock&)>& work);

// Error(plugin) for groups of more rows than there are.
void check_rows(const RowGroups& groups, int64_t rows);

// As the kernel of groups reads it: rows of dense elements, and where they are.
struct ReadRows {
  explicit ReadRows(const GroupedRows& rows);
  StoredRows part(int64_t first, int64_t count, int64_t column, int64_t columns, bool transposed) const;
  const at::Tensor x;
  at::Tensor index;
};

// Whether at::_grouped_mm takes it on CUDA: bfloat16 with rows of whole 16 bytes.
bool groups_on_device(const at::Tensor& x, int64_t columns);

// [E O, I] as [E, O, I].
at::Tensor by_group(const at::Tensor& weight, const RowGroups& groups);

}  // namespace drivetrain
