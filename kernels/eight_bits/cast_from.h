// What numbers that are cast to 8 bits are computed from in the pass that casts them, so that they are never written
// in 16 bits: an activation, its gradient, or a norm whose statistics are there. They are rounded to bfloat16 first,
// as the kernels of their own write them: bits are those of one after the other.
//
// Legend: N rows, K columns of what is cast; F: K, or K / 2 of an activation's gradient where it is gated.
#pragma once

#include "kernels/activation/activation.h"
#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

struct CastFrom {
  // `x` of the cast is: itself [N, K]; x of ActivationForward [N, K], gated [N, 2 K]; x of ActivationBackward [N, K];
  // the sum of NormForward [N, K].
  enum class Kind : uint8_t { itself, activation, activation_backward, norm };
  Kind kind = Kind::itself;
  Activation activation = Activation::gelu_tanh;
  float offset = 0;              // as NormForward
  const void* dy = nullptr;      // of activation_backward: [N, F]
  const void* weight = nullptr;  // of a norm: [K]
  const void* bias = nullptr;    // of a norm [K], of an activation as wide as its x; or null
  const float* mean = nullptr;   // of a norm: [N], or null for rms
  const float* rstd = nullptr;   // of a norm: [N]
};

// Whether a cast computes its numbers: of bfloat16, in packs of 16 bytes. Else they have to be there. Those that are
// cast to e5m2 are gradients: other kinds are refused.
constexpr bool cast_from_fits(const CastFrom& from, int64_t k, Dtype dtype) {
  constexpr int64_t kPack = 8;
  const bool halves = from.kind == CastFrom::Kind::activation_backward && is_gated(from.activation);
  return from.kind == CastFrom::Kind::itself || (dtype == Dtype::bf16 && k % (halves ? 2 * kPack : kPack) == 0);
}

}  // namespace drivetrain::kernels
