// FlashAttention on CUDA by LibTorch's two implementations, FlashAttention-2's own kernels and cuDNN's: forward,
// backward with what forward kept, and which of them is faster for a shape. bfloat16 and float16, heads of a multiple
// of 8 up to 256, fewer key/value heads natively (both kernels repeat them inside and add dk, dv over the group).
//
// Tensors [B, S, H, D] as attention.h has them; a causal mask wants as many keys as queries. Stream: the current one.
#pragma once

#include <drivetrain/attention.h>

#include <string>

namespace drivetrain::flash {

// [B, S, H, D] to the [B, H, S, D] that LibTorch's kernels take, a view where D is dense.
inline at::Tensor heads_first(const at::Tensor& x) { return (x.stride(3) == 1 ? x : x.contiguous()).transpose(1, 2); }

enum class Backend { flash, cudnn };

const char* name_of(Backend backend);

AttentionState device_forward(Backend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionArgs& args);
// By the kernel that made `state`.
Tensors device_backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args);

// Runs both, forward and backward, on these tensors; waits for the device. One that refuses the shape loses.
struct Measured {
  Backend faster = Backend::flash;
  std::string text;  // "cudnn 1.21 ms, flash 1.50 ms"
};
Measured measure(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args);

}  // namespace drivetrain::flash
