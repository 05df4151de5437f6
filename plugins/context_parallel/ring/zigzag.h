// Which positions a rank of the ring has: of twice as many chunks as ranks, one with much work and one with little.
//
// A position's work under a causal mask is what it sees: itself and what is before it in its document. Chunks are
// sorted by their work, and rank r has the r-th from below and the r-th from above. Where a row is one document, work
// grows with a chunk's place, and this is the zig-zag order of Megatron: chunk r, and the one as far from the end, with
// the same sum on every rank. Pure; any thread.
#pragma once

#include <drivetrain/random.h>

#include <vector>

namespace drivetrain::ring {

// The two chunks of rank `index` of `ranks`, ascending; neighbouring ranges are one. `cu_seqlens`: Batch::cu_seqlens;
// where `positions` are not the whole sequence they do not count. Error(config) if the chunks would not be of one size.
std::vector<RowRange> zigzag(const std::vector<RowRange>& positions, int64_t index, int64_t ranks,
                             const std::vector<int64_t>& cu_seqlens = {});

// The pairs of positions that see each other within each of `chunks` equal pieces of the whole sequence and before it,
// all rows together.
std::vector<int64_t> work_of_chunks(const std::vector<int64_t>& cu_seqlens, int64_t length, int64_t chunks);

}  // namespace drivetrain::ring
