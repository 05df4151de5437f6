// Which keys queries see under the masks of AttentionArgs (causal, window, q_offset), and attention with a window in
// blocks of queries, each with the keys that it sees: a window then costs what it attends to. Pure functions; thread
// and stream of the attention that calls them.
#pragma once

#include <functional>

#include <drivetrain/attention.h>

namespace drivetrain {

// The keys among [0, T) that at least one of `count` queries from `first` on sees, which are neighbours; count 0 if
// there are none. Without regard to varlen.
RowRange visible_keys(const AttentionArgs& args, int64_t first, int64_t count, int64_t T);

// The same arguments without masks that hide nothing from S queries among T keys: a window wider than all distances, a
// causal mask behind all keys, an offset without a mask.
AttentionArgs without_idle_masks(AttentionArgs args, int64_t S, int64_t T);

// For queries from `first_query` and keys from `first_key` on.
AttentionArgs args_of_part(AttentionArgs args, int64_t first_query, int64_t first_key);

// Queries of a block under a window. Of the keys that a block computes, one less than this many are hidden from each
// query: an eighth of a long window.
int64_t window_block(int64_t window);

// args has a window and no varlen. `one` computes queries q [B, L, H, D] with keys k and v [B, M, G, D], at least one
// of each, under a causal mask or a window that need not hide anything. It is called in ascending order of queries.
AttentionState forward_by_window(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args,
    const std::function<AttentionState(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const AttentionArgs& args)>& one);

// The same for the state's q, k, v, out and lse, and dout [B, S, H, D]; `one` returns dq, dk, dv of a block. Gradients
// of keys are added in the type that the tensors have.
Tensors backward_by_window(
    const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args,
    const std::function<Tensors(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args)>& one);

}  // namespace drivetrain
