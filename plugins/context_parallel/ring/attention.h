// Causal attention over a sequence whose positions lie on several ranks as zigzag.h says, while keys and values travel.
//
// Source: Liu et al. 2023, "Ring Attention with Blockwise Transformers"; the zig-zag order and its halves are those of
// Megatron's context parallelism. In step s rank r has the keys of rank r - s; blocks.h says which of its queries see
// them. Each step after the first has the same work, half a block's, unless documents end in between, and needs no
// mask. In backward keys and values travel again, with their gradients one step behind them, which are added in the
// order of the ring: the same bits in every run. With a window, keys that it does not reach are neither computed nor
// sent (travel.h). Legend of attention.h; T = S positions of this rank.
// Thread: main, or autograd's: one call at a time. Stream: the current one.
#pragma once

#include <drivetrain/attention.h>

#include <memory>

#include "blocks.h"
#include "travel.h"

namespace drivetrain::ring {

// A call of the attention inside.
struct Part {
  Block block;
  AttentionArgs args;
};

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
  RingShape shape_of(const at::Tensor& q, const AttentionArgs& args) const;
  // Of the rank's own keys: one call, or with a window one for each chunk and what is between them.
  std::vector<Part> own_parts(const AttentionArgs& args, const RingShape& shape) const;
  std::vector<Part> parts_with(int64_t other, const AttentionArgs& args, const RingShape& shape) const;
  int64_t source(int64_t step) const { return (index_ - step + ranks_) % ranks_; }  // whose keys are at hand
  void check_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args) const;
  // k, v: the part's keys and values.
  AttentionState compute(const Part& part, const AttentionState& all, const at::Tensor& k, const at::Tensor& v) const;
  Tensors compute_backward(const Part& part, const at::Tensor& dout, const AttentionState& all, const at::Tensor& k,
                           const at::Tensor& v, Tensors extra) const;
  // dq, dk and dv of the rank's own keys, in the wide type. `at_extra`: index into the state's lists, moved on.
  Tensors own_gradients(const at::Tensor& dout, const AttentionState& state, const std::vector<Part>& parts,
                        size_t& at_extra) const;
  std::unique_ptr<Travel> begin_travel(const at::Tensor& k, const at::Tensor& v, const RingShape& shape) const;

  std::shared_ptr<Attention> inner_;
  int64_t index_, ranks_;
  std::unique_ptr<Exchanges> exchanges_;
};

}  // namespace drivetrain::ring
