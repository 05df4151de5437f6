// Rotary position embedding between the fused q, k, v matrix and attention's three tensors, both ways.
//
// Source: Su et al. 2021, "RoFormer", eq. 34; pairs are (i, i + P) of the first 2 P elements of a head, as in Hugging
// Face's weights; the other elements pass. The turn is float32.
// Legend: N tokens (B x S), S sequence, H query heads, G key/value heads, C head size, P pairs. Token n has position n
// mod S.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

inline constexpr int64_t kRotaryRows = 64;
struct Rotary {
  // qkv [N, (H + 2 G) C]; q [N, H, C]; k, v [N, G, C].
  // Forward reads qkv and writes the three, backward reads the three (gradients) and writes qkv, turning back.
  void *qkv = nullptr, *q = nullptr, *k = nullptr, *v = nullptr;
  const void* bias = nullptr;                  // [(H + 2 G) C] or null: added to qkv before the turn; forward only
  const float *cos = nullptr, *sin = nullptr;  // [S, P]; both null: no turn, only the split
  int64_t tokens = 0, sequence = 0, heads = 0, groups = 0, head_dim = 0;
  Dtype dtype = Dtype::f32;
  // [blocks_of(N, kRotaryRows), (H + 2 G) C] or null: backward on CUDA writes sums over so many tokens of what goes
  // into qkv, before it is rounded: the first step of a bias gradient.
  float* partial = nullptr;
  int64_t pairs = 0;  // P; 0: C/2
};
DRIVETRAIN_KERNEL void rotary_forward_cpu(const Rotary&, int64_t token_begin, int64_t token_end);
DRIVETRAIN_KERNEL int rotary_forward_cuda(const Rotary&, void* stream);
DRIVETRAIN_KERNEL void rotary_backward_cpu(const Rotary&, int64_t token_begin, int64_t token_end);
DRIVETRAIN_KERNEL int rotary_backward_cuda(const Rotary&, void* stream);

}  // namespace drivetrain::kernels
