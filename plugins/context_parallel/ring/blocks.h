// Which of a rank's queries meet which of another rank's keys, for positions that lie on ranks as zigzag.h says.
//
// Without documents: of its own keys a rank sees what a causal mask over its two chunks lets through; of a lower rank's
// the first chunk, whole; a higher rank's both chunks, but by its second chunk only. With documents: the same inside of
// each document, and nothing else. Pure; any thread.
#pragma once

#include <vector>

#include <drivetrain/random.h>

namespace drivetrain::ring {

// One call of the attention: `rows` of the batch, and columns of queries and of keys.
struct Block {
  RowRange rows, queries, keys;
};

// Rows [B, T positions on each of `ranks`]. `cu_seqlens`: Batch::cu_seqlens of the whole sequences, or empty.
struct RingShape {
  int64_t rows = 0, columns = 0, ranks = 1;
  const std::vector<int64_t>& cu_seqlens;
};

// The boundaries of the documents among a rank's own columns, counted through row after row; empty without documents.
// Causal attention within them is all that the rank's own keys are for: where a document lies in both chunks, what is
// missing between them are other ranks' keys.
std::vector<int64_t> own_boundaries(const RingShape& shape, int64_t index);

// The blocks of rank `index`'s queries and rank `other`'s keys, which is another rank. No block needs a mask.
std::vector<Block> blocks_between(const RingShape& shape, int64_t index, int64_t other);

}  // namespace drivetrain::ring
