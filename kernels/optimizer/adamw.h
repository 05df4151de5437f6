// Adam in one pass over values, moments and gradients: clip factor, both kinds of weight decay, working copy, zeroing.
//
// Source: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2;
// PyTorch's AdamW for the order of operations:
//   g := grad * grad_scale + l2 * p          m := beta1 m + (1 - beta1) g        v := beta2 v + (1 - beta2) g^2
//   p := p * (1 - lr * decay) - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

// Scalars that change from step to step: on the device on CUDA, so that a captured step can be replayed.
struct AdamScalars {
  const double* hyper = nullptr;  // lr, weight decay, beta1 of this group
  const double* grad_scale = nullptr;
  const bool* skip = nullptr;     // true: leave everything as it is
  const int64_t* step = nullptr;  // updates applied so far; t = *step + 1
};

struct Adam {
  float *value = nullptr, *m = nullptr, *v = nullptr;  // [n]
  void* grad = nullptr;                                // [n]
  void* working = nullptr;                             // [n] or null: the value in the working dtype
  int64_t n = 0;
  double beta2 = 0.999, epsilon = 1e-8;
  bool l2 = false;  // decay is L2 regularisation instead of decoupled
  bool bias_correction = true;
  bool zero_grad = false;  // leave the gradient zero
  AdamScalars scalars;
  Dtype grad_dtype = Dtype::f32, working_dtype = Dtype::bf16;
};
// CPU: grad of any type, working bf16 or f16. Elements [begin, end).
DRIVETRAIN_KERNEL void adam_cpu(const Adam&, int64_t begin, int64_t end);
DRIVETRAIN_KERNEL int adam_cuda(const Adam&, void* stream);

// Many parameters, or parts of them, in one launch. An array of these lies on the device; what it says of a parameter
// is what Adam says.
struct AdamSegment {
  float *value = nullptr, *m = nullptr, *v = nullptr;
  void *grad = nullptr, *working = nullptr;
  int64_t n = 0, group = 0;
  int64_t first = 0;  // tiles of kAdamTile elements in all segments before this one
};
inline constexpr int64_t kAdamTile = 4096;
inline constexpr int64_t kMostAdamGroups = 64;

struct AdamMany {
  const AdamSegment* segments = nullptr;  // [count]
  int64_t count = 0, tiles = 0, groups = 1;
  Adam shared;  // all but the arrays; scalars.hyper [groups, 3]
};
DRIVETRAIN_KERNEL int adam_many_cuda(const AdamMany&, void* stream);

}  // namespace drivetrain::kernels
