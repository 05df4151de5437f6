#include "heads.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::ulysses {
namespace {

// The first ones get one more where `count` is no multiple.
std::vector<RowRange> even_shares(int64_t count, int64_t ranks) {
  std::vector<RowRange> shares;
  int64_t first = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t size = count / ranks + (r < count % ranks ? 1 : 0);
    shares.push_back({first, size});
    first += size;
  }
  return shares;
}

}  // namespace

std::vector<HeadShare> share_heads(int64_t query_heads, int64_t key_heads, int64_t ranks) {
  if (ranks > query_heads)
    throw fail(ErrorCode::config, "context_parallel/ulysses: ", query_heads, " query heads cannot be divided among ",
               ranks, " ranks, each of which needs one; set size to ", query_heads,
               " or less, or use context_parallel/ring");
  const int64_t per_key = query_heads / key_heads;
  std::vector<HeadShare> shares;
  if (ranks <= key_heads) {
    for (const RowRange& key : even_shares(key_heads, ranks))
      shares.push_back({{key.first * per_key, key.count * per_key}, key});
    return shares;
  }
  const std::vector<RowRange> ranks_of_key = even_shares(ranks, key_heads);
  for (int64_t g = 0; g < key_heads; ++g)
    for (const RowRange& part : even_shares(per_key, ranks_of_key[static_cast<size_t>(g)].count))
      shares.push_back({{g * per_key + part.first, part.count}, {g, 1}});
  return shares;
}

std::vector<RowRange> rows_of_part(const std::vector<RowRange>& rows, const RowRange& part) {
  if (rows.empty()) return {part};
  std::vector<RowRange> found;
  int64_t before = 0;
  for (const RowRange& range : rows) {
    const int64_t begin = std::max(part.first, before), end = std::min(part.first + part.count, before + range.count);
    if (begin < end) found.push_back({range.first + begin - before, end - begin});
    before += range.count;
  }
  return found;
}

}  // namespace drivetrain::ulysses
