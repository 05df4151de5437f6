#include "blocks.h"

#include <algorithm>

#include "zigzag.h"

namespace drivetrain::ring {
namespace {

int64_t end_of(const RowRange& range) { return range.first + range.count; }

std::vector<RowRange> chunks_of(const RingShape& shape, int64_t index) {
  return zigzag({{0, shape.columns * shape.ranks}}, index, shape.ranks, shape.cu_seqlens);
}

// The document of a position of a row, as positions of that row.
RowRange document_of(const RingShape& shape, int64_t row, int64_t position) {
  const int64_t S = shape.columns * shape.ranks, at = row * S + position;
  if (shape.cu_seqlens.empty()) return {0, S};
  const auto next = std::upper_bound(shape.cu_seqlens.begin(), shape.cu_seqlens.end(), at);
  return {*(next - 1) - row * S, *next - *(next - 1)};
}

// What of a document is among these chunks, as columns; the first chunk is at column 0.
struct Columns {
  RowRange chunk;
  int64_t column;
};

std::vector<Columns> with_columns(const std::vector<RowRange>& chunks) {
  std::vector<Columns> list;
  for (int64_t column = 0; const RowRange& chunk : chunks) {
    list.push_back({chunk, column});
    column += chunk.count;
  }
  return list;
}

// Boundaries of the documents in rows that consist of these chunks, `width` columns.
std::vector<int64_t> boundaries_in(const RingShape& shape, const std::vector<Columns>& chunks, int64_t width) {
  std::vector<int64_t> boundaries;
  if (shape.cu_seqlens.empty()) return boundaries;
  for (int64_t row = 0; row < shape.rows; ++row) {
    int64_t last_begin = -1;  // of the document before
    for (const auto& [chunk, column] : chunks)
      for (int64_t position = chunk.first; position < end_of(chunk);) {
        const RowRange document = document_of(shape, row, position);
        if (document.first != last_begin) boundaries.push_back(row * width + column + position - chunk.first);
        last_begin = document.first, position = end_of(document);
      }
  }
  boundaries.push_back(shape.rows * width);
  return boundaries;
}

// Positions of queries of a chunk, and of keys before it.
struct Pieces {
  RowRange queries, keys;
};
// What of them a window reaches; no keys if nothing.
Pieces within_window(Pieces all, int64_t window) {
  const int64_t key_end = end_of(all.keys);
  const int64_t begin = std::max(all.keys.first, all.queries.first - window + 1);
  const int64_t query_end = std::min(end_of(all.queries), key_end + window - 1);
  return {{all.queries.first, query_end - all.queries.first}, {begin, std::max<int64_t>(0, key_end - begin)}};
}

// Each chunk of ours that a window joins with one of theirs before it.
std::vector<Block> windowed_blocks(const RingShape& shape, const std::vector<Columns>& own,
                                   const std::vector<Columns>& theirs) {
  const bool all_rows = shape.cu_seqlens.empty();
  std::vector<Block> blocks;
  for (int64_t row = 0; row < (all_rows ? 1 : shape.rows); ++row)
    for (const auto& [chunk, column] : own)
      for (const auto& [key_chunk, key_column] : theirs) {
        const RowRange document = document_of(shape, row, chunk.first);
        const int64_t begin = std::max(document.first, key_chunk.first), end = end_of(key_chunk);
        if (end > chunk.first || begin >= end) continue;
        const int64_t queries = std::min(end_of(document), end_of(chunk)) - chunk.first;
        const Pieces seen = within_window({{chunk.first, queries}, {begin, end - begin}}, shape.window);
        if (seen.keys.count == 0) continue;
        const bool masked = end_of(seen.queries) - 1 - seen.keys.first >= shape.window;
        blocks.push_back({all_rows ? RowRange{0, shape.rows} : RowRange{row, 1},
                          {column, seen.queries.count},
                          {key_column + seen.keys.first - key_chunk.first, seen.keys.count},
                          masked ? shape.window : 0,
                          masked ? seen.queries.first - seen.keys.first : 0});
      }
  return blocks;
}

}  // namespace

std::vector<int64_t> own_boundaries(const RingShape& shape, int64_t index) {
  return boundaries_in(shape, with_columns(chunks_of(shape, index)), shape.columns);
}

std::vector<OwnChunk> own_chunks(const RingShape& shape, int64_t index) {
  std::vector<OwnChunk> list;
  for (const auto& [chunk, column] : with_columns(chunks_of(shape, index)))
    list.push_back({{column, chunk.count}, boundaries_in(shape, {{chunk, 0}}, chunk.count)});
  return list;
}

std::vector<Block> blocks_between(const RingShape& shape, int64_t index, int64_t other) {
  const std::vector<Columns> own = with_columns(chunks_of(shape, index)),
                             theirs = with_columns(chunks_of(shape, other));
  if (shape.window > 0) return windowed_blocks(shape, own, theirs);
  const bool all_rows = shape.cu_seqlens.empty();
  std::vector<Block> blocks;
  for (int64_t row = 0; row < (all_rows ? 1 : shape.rows); ++row)
    for (const auto& [chunk, column] : own) {
      // Keys before a chunk of queries are seen by the document that its first query is in, and by that one only.
      const RowRange document = document_of(shape, row, chunk.first);
      const int64_t queries = std::min(end_of(document), end_of(chunk)) - chunk.first;
      RowRange keys;  // both chunks lie before ours, or the first one, or none
      for (const auto& [key_chunk, key_column] : theirs) {
        const int64_t begin = std::max(document.first, key_chunk.first), end = end_of(key_chunk);
        if (end > chunk.first || begin >= end) continue;
        if (keys.count == 0) keys.first = key_column + begin - key_chunk.first;
        keys.count += end - begin;
      }
      if (keys.count == 0) continue;
      blocks.push_back({all_rows ? RowRange{0, shape.rows} : RowRange{row, 1}, {column, queries}, keys});
    }
  // Without documents both of our chunks may see the same keys: then they are one block.
  if (all_rows && blocks.size() == 2 && blocks[0].keys == blocks[1].keys)
    blocks = {{blocks[0].rows, {0, shape.columns}, blocks[0].keys}};
  return blocks;
}

}  // namespace drivetrain::ring
