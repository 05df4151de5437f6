// Which of a rank's queries meet which of another rank's keys, for positions that lie on ranks as zigzag.h says.
//
// Without documents: of its own keys a rank sees what a causal mask over its two chunks lets through; of a lower rank's
// the first chunk, whole; a higher rank's both chunks, but by its second chunk only. With documents: the same inside of
// each document, and nothing else. With a window, chunks meet one by one, those that it does not reach not at all.
// Pure; any thread.
#pragma once

#include <vector>

#include <drivetrain/random.h>

namespace drivetrain::ring {

// One call of the attention: `rows` of the batch, and columns of queries and of keys.
struct Block {
  RowRange rows, queries, keys;
  int64_t window = 0;  // not 0: not all of its queries see all of its keys
  int64_t offset = 0;  // of the first query from the first key
};

// Rows [B, T positions on each of `ranks`]. `cu_seqlens`: Batch::cu_seqlens of the whole sequences, or empty. `window`:
// AttentionArgs::window, 0 if it is as long as the sequence.
struct RingShape {
  int64_t rows = 0, columns = 0, ranks = 1;
  const std::vector<int64_t>& cu_seqlens;
  int64_t window = 0;
};

// The boundaries of the documents among a rank's own columns, counted through row after row; empty without documents.
// Causal attention within them is all that the rank's own keys are for: where a document lies in both chunks, what is
// missing between them are other ranks' keys.
std::vector<int64_t> own_boundaries(const RingShape& shape, int64_t index);

// With a window distances count, also over what is missing, so that each chunk is for itself: columns of this rank that
// are neighbours in the sequence, and the boundaries among them, counted from the first one, row after row.
struct OwnChunk {
  RowRange columns;
  std::vector<int64_t> boundaries;
};
std::vector<OwnChunk> own_chunks(const RingShape& shape, int64_t index);

// The blocks of rank `index`'s queries and rank `other`'s keys; with a window it may be the same rank, of whose chunks
// the second then meets the first. No block needs a mask but the window's.
std::vector<Block> blocks_between(const RingShape& shape, int64_t index, int64_t other);

}  // namespace drivetrain::ring
