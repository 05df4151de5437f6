// Attention over a sequence whose positions lie on several ranks, each of which attends to all of it with some of the
// heads.
//
// Source: Jacobs et al. 2023, "DeepSpeed Ulysses", section 3.1. We differ: any number of heads from that of the ranks
// on; a key head goes once to each rank whose query heads use it; q, k and v travel in one message per pair of ranks.
// Legend of attention.h, and C ranks, P = S / C positions of one of them, W heads of q, k and v of one of them side by
// side. A message is [P, B, W, D]: what a rank has from all ranks is [S, B, W, D], and attention reads it where it
// lies. Thread: main, or autograd's: one call at a time. Stream: the current one.
#pragma once

#include <drivetrain/attention.h>

#include "exchange.h"
#include "heads.h"

namespace drivetrain::ulysses {

class HeadsAttention : public Attention {
 public:
  HeadsAttention(std::shared_ptr<Attention> inner, int64_t ranks) : inner_(std::move(inner)), ranks_(ranks) {}
  // Before the first forward. Its ranks hold the positions in rank order.
  void set_group(GroupPtr group) { exchange_ = std::make_unique<Exchange>(std::move(group)); }

  // Those of the attention within, but for the lse, which stays with the heads' ranks.
  AttentionAbilities abilities() const override;
  // q [B, P, H, D], k, v [B, P, G, D] of this rank's positions -> out [B, P, H, D]. The rest of the state is this
  // class's own.
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override;
  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override;
  AttentionMemory memory(const AttentionShape& shape) const override;

 private:
  AttentionArgs inner_args(const AttentionArgs& args, const HeadShare& mine) const;
  // Of tensors [B, P, heads, D] this rank's heads over all positions, side by side: [B, S, W, D].
  at::Tensor to_heads(const Tensors& tensors, const std::vector<std::vector<RowRange>>& heads_of_rank) const;
  // The way back: of tensors [B, S, heads, D], one message from each rank i, [P, B, its heads, D].
  Tensors to_positions(const Tensors& tensors, const std::vector<int64_t>& widths) const;

  std::shared_ptr<Attention> inner_;
  int64_t ranks_;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace drivetrain::ulysses
