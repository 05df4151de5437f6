// For attentions over a sequence that is cut over ranks: results over parts of the keys become one, and keys of all
// ranks come together. Thread and stream of the attention that calls them.
#pragma once

#include <drivetrain/attention.h>
#include <drivetrain/communicator.h>

namespace drivetrain {

// Merges the result of the same queries over further keys into `merged`, whose `out` and `lse` are undefined before the
// first one. `out` stays in the dtype of `lse` (float32, or float64); AttentionState::extra is the caller's.
void merge_attention(AttentionState& merged, const AttentionState& further);

// x [B, S, ...] on every rank -> [B, ranks * S, ...], in the order of ranks. Collective; waits.
at::Tensor gather_pieces(Group& group, const at::Tensor& x);
// Back: the sum over ranks of x [B, ranks * S, ...], of which this rank gets its [B, S, ...]. Collective; waits.
at::Tensor sum_pieces(Group& group, const at::Tensor& x);

}  // namespace drivetrain
