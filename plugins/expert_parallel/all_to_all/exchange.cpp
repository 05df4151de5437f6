#include "exchange.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

namespace drivetrain::all_to_all {
namespace {

using Counts = std::vector<int64_t>;

int64_t sum(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

// [outer x inner] as [inner x outer].
template <class T>
std::vector<T> transposed(const std::vector<T>& list, int64_t outer) {
  const size_t rows = static_cast<size_t>(outer), columns = list.size() / rows;
  std::vector<T> turned;
  turned.reserve(list.size());
  for (size_t c = 0; c < columns; ++c)
    for (size_t r = 0; r < rows; ++r) turned.push_back(list[r * columns + c]);
  return turned;
}

// Rows in blocks of `counts` [outer x inner], as blocks [inner x outer].
at::Tensor reordered(const at::Tensor& rows, const Counts& counts, int64_t outer) {
  if (outer == 1 || static_cast<size_t>(outer) == counts.size()) return rows;
  return at::cat(transposed(at::split_with_sizes(rows, counts), outer));
}

// Of `parts` equal pieces of the list, each one's sum.
Counts sums(const Counts& counts, int64_t parts) {
  const auto size = static_cast<std::ptrdiff_t>(counts.size()) / parts;
  Counts result;
  for (auto at = counts.begin(); at != counts.end(); at += size)
    result.push_back(std::accumulate(at, at + size, int64_t{0}));
  return result;
}

}  // namespace

int64_t Splits::rows_sent() const { return sum(sent); }
int64_t Splits::rows_received() const { return sum(received); }

// Both lists are read by the host at once, so that it waits for a device once.
Splits Exchange::splits(const at::Tensor& counts_E) const {
  const at::Tensor sent = counts_E.contiguous(), received = at::empty_like(sent);
  ranks_->group->all_to_all(received, sent)->wait();
  const at::Tensor both = at::cat({sent, received}).to(at::kCPU);
  const int64_t *first = both.const_data_ptr<int64_t>(), *middle = first + sent.numel();
  return {{first, middle}, {middle, middle + sent.numel()}};
}

at::Tensor Exchange::counts_here(const Splits& splits, const at::Tensor& like) const {
  const Counts here =
      sums(transposed(splits.received, ranks_->size), static_cast<int64_t>(splits.received.size()) / ranks_->size);
  const at::Tensor counts = at::empty({static_cast<int64_t>(here.size())}, at::TensorOptions(at::kLong));
  std::copy(here.begin(), here.end(), counts.mutable_data_ptr<int64_t>());
  return counts.to(like.device());
}

at::Tensor Exchange::there(const at::Tensor& rows, const Splits& splits) const {
  const at::Tensor arrived = travel(rows.narrow(0, 0, splits.rows_sent()), splits.sent, splits.received);
  return reordered(arrived, splits.received, ranks_->size);
}

at::Tensor Exchange::back(const at::Tensor& rows, const Splits& splits, int64_t R) const {
  const Counts by_expert = transposed(splits.received, ranks_->size);
  const at::Tensor by_rank = reordered(rows, by_expert, static_cast<int64_t>(by_expert.size()) / ranks_->size);
  const at::Tensor returned = travel(by_rank, splits.received, splits.sent);
  if (returned.size(0) == R) return returned;
  return at::cat({returned, at::zeros({R - returned.size(0), rows.size(1)}, rows.options())});
}

at::Tensor Exchange::travel(const at::Tensor& rows, const Counts& sent, const Counts& received) const {
  const auto elements = [&](const Counts& counts) {
    Counts by_rank = sums(counts, ranks_->size);
    for (int64_t& count : by_rank) count *= rows.size(1);
    return by_rank;
  };
  const at::Tensor out = at::empty({sum(received), rows.size(1)}, rows.options());
  ranks_->group->all_to_all(out, rows.contiguous(), elements(received), elements(sent))->wait();
  return out;
}

}  // namespace drivetrain::all_to_all
