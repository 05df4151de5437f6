// Matrix products of 16-bit operands with float32 sums, on processors that have instructions for them: C = A B + bias.
// Every element of C is summed over k in one order that depends on K alone, so results depend neither on the number of
// threads nor on how tasks are divided.
//
// The operand that all tasks read is packed once, by all threads; the other one is packed by the task that reads it:
//   product_pack(op, panels), then product_cpu(op, tasks).
// float32 operands are rounded to bfloat16 on the way (`split` false), or split into two bfloat16 each, whose three
// larger products are added (`split` true): x = high + low, A B ~ A_high B_high + A_high B_low + A_low B_high.
//
// Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication"; Henry et al. 2019,
// "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations" (the split).
// Legend: M rows and N columns of C, K summands; a panel is 32 rows of A or 32 columns of B, or those that are left.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

// Instructions for products of bfloat16: tiles of 16 x 32 (AMX), or pairs (AVX512-BF16).
enum class ProductUnit : uint8_t { none, avx512_bf16, amx };
// The best that this processor has and the operating system allows.
DRIVETRAIN_KERNEL ProductUnit product_unit();
// Whether this processor multiplies float16 (AVX512-FP16). Such products are other libraries'.
DRIVETRAIN_KERNEL bool multiplies_float16();

struct Product {
  const void* a = nullptr;                           // [M, K], or stored as [K, M]; of `dtype`
  const void* b = nullptr;                           // [K, N], or stored as [N, K]; of `dtype`
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;  // elements between stored rows
  bool a_transposed = false, b_transposed = false;   // stored as [K, M], as [N, K]
  bool c_transposed = false;                         // stored as [N, M]; without bias
  const void* bias = nullptr;                        // [N] of c_dtype, or null
  void* c = nullptr;                                 // [M, N] of c_dtype
  bool add = false;                                  // float32 C only: C += instead of C =
  bool stream = false;                               // float32 C only: not read again soon, written past the caches
  int64_t m = 0, n = 0, k = 0;
  Dtype dtype = Dtype::bf16, c_dtype = Dtype::bf16;  // bf16 or f32
  bool split = false;                                // of float32 operands
  bool shares_a = true;  // every task reads A, which is packed before; else B. Choose the smaller one
  bool alone = false;    // one thread does it all: there may be fewer tasks, which read memory faster
  ProductUnit unit = ProductUnit::none;
  void* packed = nullptr;  // product_packed_bytes, aligned to 64: the packed operand
};

DRIVETRAIN_KERNEL int64_t product_packed_bytes(const Product&);
DRIVETRAIN_KERNEL int64_t product_panels(const Product&);  // of the operand that is packed before
DRIVETRAIN_KERNEL void product_pack(const Product&, int64_t panel_begin, int64_t panel_end);

DRIVETRAIN_KERNEL int64_t product_tasks(const Product&);
DRIVETRAIN_KERNEL int64_t product_scratch_bytes(const Product&);  // that product_cpu needs on each thread
DRIVETRAIN_KERNEL void product_cpu(const Product&, void* scratch, int64_t task_begin, int64_t task_end);

}  // namespace drivetrain::kernels
