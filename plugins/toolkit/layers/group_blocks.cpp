#include "group_blocks.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>

#include <drivetrain/error.h>

namespace drivetrain {

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

ReadRows::ReadRows(const GroupedRows& rows) : x(rows.x.stride(1) == 1 ? rows.x : rows.x.contiguous()) {
  if (rows.index.defined()) index = rows.index.contiguous();
}

StoredRows ReadRows::part(int64_t first, int64_t count, int64_t column, int64_t columns, bool transposed) const {
  const at::Tensor cut = x.narrow(1, column, columns);
  if (index.defined()) return {cut, index.const_data_ptr<int64_t>() + first, count, transposed};
  return {cut.narrow(0, first, count), nullptr, count, transposed};
}

bool groups_on_device(const at::Tensor& x, int64_t columns) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && x.size(0) > 0 && x.size(1) % 8 == 0 && columns % 8 == 0 &&
         x.size(0) <= std::numeric_limits<int32_t>::max();
}

at::Tensor by_group(const at::Tensor& weight, const RowGroups& groups) {
  return weight.detach().view({groups.size(), weight.size(0) / std::max<int64_t>(groups.size(), 1), weight.size(1)});
}

RowGroups::RowGroups(const at::Tensor& counts)
    : parts_(counts.dim() == 2 ? counts.contiguous() : at::Tensor()),
      counts_(counts.dim() == 2 ? counts.sum(1) : counts) {}

std::vector<int64_t> RowGroups::part_bounds(int64_t e) const {
  std::vector<int64_t> bounds = {this->bounds()[size_t(e)]};
  const int64_t* const rows = parts_.const_data_ptr<int64_t>() + e * parts();
  for (int64_t p = 0; p < parts(); ++p) bounds.push_back(bounds.back() + rows[p]);
  return bounds;
}

int64_t RowGroups::most_of_a_part() const {
  return parts_.defined() && parts_.numel() > 0 ? parts_.max().item<int64_t>() : 0;
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

}  // namespace drivetrain
