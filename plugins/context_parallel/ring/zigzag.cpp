#include "zigzag.h"

#include <algorithm>
#include <numeric>

#include <drivetrain/error.h>

namespace drivetrain::ring {
namespace {

void append(std::vector<RowRange>& list, const std::vector<RowRange>& part) {
  for (const RowRange& range : part)
    if (!list.empty() && list.back().first + list.back().count == range.first)
      list.back().count += range.count;
    else
      list.push_back(range);
}

// Numbers of chunks, the one with the least work first.
std::vector<int64_t> by_work(const std::vector<int64_t>& cu_seqlens, int64_t length, int64_t chunks) {
  std::vector<int64_t> order(static_cast<size_t>(chunks));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (cu_seqlens.empty() || cu_seqlens.back() % length != 0) return order;
  const std::vector<int64_t> work = work_of_chunks(cu_seqlens, length, chunks);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return work[static_cast<size_t>(a)] < work[static_cast<size_t>(b)]; });
  return order;
}

}  // namespace

std::vector<int64_t> work_of_chunks(const std::vector<int64_t>& cu_seqlens, int64_t length, int64_t chunks) {
  const int64_t size = length / chunks;
  const auto pairs = [](int64_t n) { return n * (n + 1) / 2; };  // of n positions from the begin of a document on
  std::vector<int64_t> work(static_cast<size_t>(chunks));
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
    const int64_t begin = cu_seqlens[i], end = cu_seqlens[i + 1];
    for (int64_t at = begin; at < end;) {
      const int64_t next = std::min(end, (at / size + 1) * size);
      work[static_cast<size_t>(at % length / size)] += pairs(next - begin) - pairs(at - begin);
      at = next;
    }
  }
  return work;
}

std::vector<RowRange> zigzag(const std::vector<RowRange>& positions, int64_t index, int64_t ranks,
                             const std::vector<int64_t>& cu_seqlens) {
  int64_t count = 0;
  for (const RowRange& range : positions) count += range.count;
  const int64_t chunks = 2 * ranks;
  if (count % chunks != 0)
    throw fail(ErrorCode::config, "context_parallel/ring: ", count, " positions cannot be cut into ", chunks,
               " equal chunks, two for each of ", ranks, " ranks; set seq_length to a multiple of ", chunks);
  if (count == 0) return {};
  const bool whole = positions.size() == 1 && positions.front().first == 0;
  const std::vector<int64_t> order = by_work(whole ? cu_seqlens : std::vector<int64_t>(), count, chunks);
  const int64_t one = order[static_cast<size_t>(index)], other = order[static_cast<size_t>(chunks - 1 - index)];
  std::vector<RowRange> list;
  append(list, part_of(positions, chunks, std::min(one, other)));
  append(list, part_of(positions, chunks, std::max(one, other)));
  return list;
}

}  // namespace drivetrain::ring
