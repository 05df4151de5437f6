// Causal attention over a sequence whose positions lie on several ranks as zigzag.h says, while keys and values travel.
//
// Source: Liu et al. 2023, "Ring Attention with Blockwise Transformers"; the zig-zag order and its halves are those of
// Megatron's context parallelism. In step s rank r has the keys of rank r - s; blocks.h says which of its queries see
// them. Each step after the first has the same work, half a block's, unless documents end in between, and needs no
// mask. In backward keys and values travel again, with their gradients one step behind them, to which every rank adds
// in the order of the ring: the same bits in every run. Legend of attention.h; T = S positions of this rank.
// Thread: main, or autograd's: one call at a time. Stream: the current one.
#pragma once

#include <drivetrain/attention.h>

#include <memory>

#include "blocks.h"
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
  AttentionMemory memory(const AttentionShape& shape) const override;

 private:
  // For the rank's own keys, and for those of others: arguments of the attention inside.
  struct Arguments {
    AttentionArgs own, others;
  };
  Arguments arguments(const AttentionArgs& args, const RingShape& shape) const;
  int64_t source(int64_t step) const { return (index_ - step + ranks_) % ranks_; }  // whose keys are at hand
  void check_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args) const;
  AttentionState compute(const Block& block, const AttentionState& all, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const;
  Tensors compute_backward(const Block& block, const at::Tensor& dout, const AttentionState& all, const at::Tensor& k,
                           const at::Tensor& v, Tensors extra, const AttentionArgs& args) const;
  void load(const at::Tensor& k, const at::Tensor& v) const;  // into keys_

  std::shared_ptr<Attention> inner_;
  int64_t index_, ranks_;
  std::unique_ptr<RingExchange> keys_, gradients_;  // [2, B, T, G, D]: k and v
};

}  // namespace drivetrain::ring
