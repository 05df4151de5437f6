// Which rank attends with which heads.
//
// Where there are key heads enough, a rank gets whole groups of query heads with their key head; else the query heads
// of one group are divided, and each of its ranks gets the key head too. Either way a rank's query heads h use its
// key head h / (query heads / key heads), counted from its own first ones. Pure functions; any thread.
#pragma once

#include <drivetrain/random.h>

#include <vector>

namespace drivetrain::ulysses {

// Neighbouring heads, as ranges of dimension 2.
struct HeadShare {
  RowRange query, key;
  int64_t width() const { return query.count + 2 * key.count; }  // of a message with q, k and v
};

// One share per rank, as even as whole heads allow. key_heads divides query_heads. Error(config) if there are fewer
// query heads than ranks.
std::vector<HeadShare> share_heads(int64_t query_heads, int64_t key_heads, int64_t ranks);

// The rows that `part` of a tensor has, of which all have `rows` (in its order; empty: as they are counted). Shares of
// heads need not be even, so part_of does not say it.
std::vector<RowRange> rows_of_part(const std::vector<RowRange>& rows, const RowRange& part);

}  // namespace drivetrain::ulysses
