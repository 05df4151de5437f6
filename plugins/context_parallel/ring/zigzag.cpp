#include "zigzag.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::ring {
namespace {

void append(std::vector<RowRange>& list, const RowRange& range) {
  if (!list.empty() && list.back().first + list.back().count == range.first)
    list.back().count += range.count;
  else
    list.push_back(range);
}

void append_part(std::vector<RowRange>& list, const std::vector<RowRange>& positions, int64_t first, int64_t count) {
  int64_t before = 0;
  for (const RowRange& range : positions) {
    const int64_t begin = std::max(first, before), end = std::min(first + count, before + range.count);
    if (begin < end) append(list, {range.first + begin - before, end - begin});
    before += range.count;
  }
}

}  // namespace

std::vector<RowRange> zigzag(const std::vector<RowRange>& positions, int64_t index, int64_t ranks) {
  int64_t count = 0;
  for (const RowRange& range : positions) count += range.count;
  const int64_t chunks = 2 * ranks, length = count / chunks;
  if (count % chunks != 0)
    throw fail(ErrorCode::config, "context_parallel/ring: ", count, " positions cannot be cut into ", chunks,
               " equal chunks, two for each of ", ranks, " ranks; set seq_length to a multiple of ", chunks);
  std::vector<RowRange> list;
  append_part(list, positions, index * length, length);
  append_part(list, positions, (chunks - 1 - index) * length, length);
  return list;
}

}  // namespace drivetrain::ring
