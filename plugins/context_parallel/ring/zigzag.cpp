#include "zigzag.h"

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

}  // namespace

std::vector<RowRange> zigzag(const std::vector<RowRange>& positions, int64_t index, int64_t ranks) {
  int64_t count = 0;
  for (const RowRange& range : positions) count += range.count;
  const int64_t chunks = 2 * ranks;
  if (count % chunks != 0)
    throw fail(ErrorCode::config, "context_parallel/ring: ", count, " positions cannot be cut into ", chunks,
               " equal chunks, two for each of ", ranks, " ranks; set seq_length to a multiple of ", chunks);
  std::vector<RowRange> list;
  append(list, part_of(positions, chunks, index));
  append(list, part_of(positions, chunks, chunks - 1 - index));
  return list;
}

}  // namespace drivetrain::ring
