// Causal attention over a sequence whose positions lie on several ranks as zigzag.h says, while keys and values travel.
//
// Source: Liu et al. 2023, "Ring Attention with Blockwise Transformers"; the zig-zag order and its halves are those of
// Megatron's context parallelism. In step s rank r has the keys of rank r - s. Of its own it sees what a causal mask
// over its two chunks lets through; of a lower rank's the first chunk, whole; a higher rank's both chunks, but by its
// second chunk only. So each step after the first has the same work, half a block's, and needs no mask. In backward
// keys and values travel again, with their gradients one step behind them, to which every rank adds in the order of the
// ring: the same bits in every run. Legend of attention.h; T = S positions of this rank, T / 2 of a chunk; C ranks.
// Thread: main, or autograd's: one call at a time. Stream: the current one.
#pragma once

#include <drivetrain/attention.h>

#include <memory>

#include "ring_exchange.h"

namespace drivetrain::ring {

class RingAttention : public Attention {
 public:
  RingAttention(std::shared_ptr<Attention> inner, int64_t index, int64_t ranks)
      : inner_(std::move(inner)), index_(index), ranks_(ranks) {}
  void set_group(const GroupPtr& group);  // before the first forward

  AttentionAbilities abilities() const override;
  // q [B, T, H, D], k, v [B, T, G, D] of this rank's positions -> out [B, T, H, D] and its lse over all keys.
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override;
  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override;

 private:
  // What one step computes: which of this rank's queries with which of the keys at hand.
  struct Block {
    bool causal;
    int64_t first_query, queries, keys;  // keys from the first one on
  };
  Block block(int64_t step, int64_t T) const;
  AttentionState compute(const Block& block, const AttentionState& all, const at::Tensor& k, const at::Tensor& v,
                         AttentionArgs args) const;
  Tensors compute_backward(const Block& block, const at::Tensor& dout, const AttentionState& all, const at::Tensor& k,
                           const at::Tensor& v, Tensors extra, AttentionArgs args) const;
  void load(const at::Tensor& k, const at::Tensor& v) const;  // into keys_

  std::shared_ptr<Attention> inner_;
  int64_t index_, ranks_;
  std::unique_ptr<RingExchange> keys_, gradients_;  // [2, B, T, G, D]: k and v
};

}  // namespace drivetrain::ring
