// What every kernel shares. Kernels know pointers, sizes and streams: no LibTorch, no threads, no allocation.
//
// Rules. An operation is a struct of arguments with one function per device:
//   CPU    void op_cpu(const Op&, int64_t begin, int64_t end)
//          Works on rows (or blocks) [begin, end); the caller shares rows between threads. Float32, bfloat16 or
//          float16 as `dtype` says, float32 inside; what is stored is rounded once. Results do not depend on how rows
//          are divided. Vector width is chosen at run time.
//   CUDA   int op_cuda(const Op&, void* stream)
//          All rows, enqueued; returns a cudaError_t, 0 if launched. Float32, bfloat16 or float16 as `dtype` says,
//          float32 inside. Same bits on every launch: no atomics on floats. May be captured into a graph.
// Matrices are row-major and dense. Pointers marked "or null" may be null. Outputs may not overlap inputs unless said.
#pragma once

#include <cstdint>

#define DRIVETRAIN_KERNEL __attribute__((visibility("default")))

namespace drivetrain::kernels {

// Whether the CUDA functions were built.
#ifdef DRIVETRAIN_WITH_CUDA
inline constexpr bool kWithCuda = true;
#else
inline constexpr bool kWithCuda = false;
#endif

enum class Dtype : uint8_t { f32, bf16, f16 };

constexpr int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }

}  // namespace drivetrain::kernels
