// Calls of the kernels in kernels/ on tensors: which tensors they take, and how their loops are split over threads.
// Thread: main.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <drivetrain/device.h>
#include <drivetrain/error.h>
#include <drivetrain/param.h>

#include "kernels/common/kernel.h"

namespace drivetrain::ops {

using kernels::kWithCuda;

// Float32 and 16 bits, on the CPU and on CUDA where these parts were built.
inline bool has_kernel(const at::Tensor& x) {
  const at::ScalarType t = x.scalar_type();
  return (x.is_cpu() || (kWithCuda && x.is_cuda())) && (t == at::kFloat || t == at::kBFloat16 || t == at::kHalf);
}

inline kernels::Dtype kernel_dtype(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat      ? kernels::Dtype::f32
         : x.scalar_type() == at::kBFloat16 ? kernels::Dtype::bf16
                                            : kernels::Dtype::f16;
}

template <class T = void>
const T* in(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}
template <class T = void>
T* out(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.mutable_data_ptr()) : nullptr;
}

// Runs `cpu(op, begin, end)` over [0, count), or `cuda(op, stream)` where the tensors are there.
template <class Op, class Cpu, class Cuda>
void run(const at::Tensor& like, const Op& op, int64_t count, int64_t grain, const Cpu& cpu, const Cuda& cuda,
         const char* name) {
  if (like.is_cpu())
    at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) { cpu(op, begin, end); });
  else if constexpr (kWithCuda)
    check_launch(cuda(op, current_stream(like.device())), name);
}

// Builds without nvcc have no CUDA functions to name.
#ifdef DRIVETRAIN_WITH_CUDA
#define DRIVETRAIN_CUDA_KERNEL(function) kernels::function
#else
#define DRIVETRAIN_CUDA_KERNEL(function) [](const auto&, void*) { return 0; }
#endif

// The param's slot := or += sum over rows of partial [rows, ...] float32, in order of row.
void add_partial_sums(Param& param, const at::Tensor& partial);

}  // namespace drivetrain::ops
