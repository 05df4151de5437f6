// FlashAttention-2 of bfloat16 on processors with instructions for its products (AMX, AVX512-BF16), by
// kernels/attention: forward, and backward with what forward kept. Everything else on the CPU is LibTorch's.
//
// Tensors [B, S, H, D] as attention.h has them, all arguments but varlen and dropout. Results do not depend on the
// number of threads.
#pragma once

#include <drivetrain/attention.h>
#include <drivetrain/planned_memory.h>

namespace drivetrain::flash {

// By type, shape and processor alone, so that forward and backward, and every run, take the same way.
bool on_16_bit_products(const at::Tensor& q, const at::Tensor& k);
bool on_16_bit_products(const AttentionShape& shape);

AttentionState cpu_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args);
Tensors cpu_backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args);

// What the kernels hold beside arguments and results; nothing for shapes that do not go to them.
struct Held {
  double forward = 0, backward = 0;
};
Held cpu_held_bytes(const AttentionShape& shape);

}  // namespace drivetrain::flash
