// Softmax attention of bfloat16 in blocks of 64 queries by 64 keys, forward and backward, on processors that multiply
// bfloat16 (kernels/product): no matrix of queries by keys is kept. Products add in float32; probabilities, and their
// gradients, are rounded to bfloat16 between two products, as every 16-bit attention does. Every sum has one order that
// depends on shapes alone, so results depend neither on the number of threads nor on how tasks are divided.
//
//   forward   pack (keys and values of all tasks), then tasks of 64 queries of a head
//   backward  tasks of a head; where several query heads share a key head, then rows of the sums over them
//
// Source: Dao 2023, "FlashAttention-2", algorithms 1 and 2. Legend: B batch, S queries, T keys, H heads, G key/value
// heads (query head h uses h / (H / G)), D head size, at most kFlashHeadSize. Query i sees keys j <= i + offset if
// causal, and those with |i + offset - j| < window if there is one. Blocks that no query sees are not computed. A query
// that sees no key has out 0 and lse -infinity.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/product/product.h"

namespace drivetrain::kernels {

inline constexpr int64_t kFlashHeadSize = 256;

// bfloat16 [B, positions, heads, D] with D dense; strides in elements.
struct FlashHeads {
  const uint16_t* data = nullptr;
  int64_t batch_stride = 0, position_stride = 0, head_stride = 0;
};

struct FlashAttention {
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, groups = 0, head_size = 0;
  float scale = 1;
  bool causal = true;
  int64_t window = 0, offset = 0;        // window 0: none
  float softcap = 0;                     // not 0: a score s becomes softcap tanh(s / softcap), before the mask
  ProductUnit unit = ProductUnit::none;  // not none
  FlashHeads q, k, v;
};

struct FlashForward : FlashAttention {
  uint16_t* out = nullptr;  // [B, S, H, D]
  float* lse = nullptr;     // [B, H, S], natural logarithm
  void* packed = nullptr;   // flash_packed_bytes, aligned to 64
};
DRIVETRAIN_KERNEL int64_t flash_packed_bytes(const FlashForward&);
DRIVETRAIN_KERNEL int64_t flash_packs(const FlashForward&);
DRIVETRAIN_KERNEL void flash_pack(const FlashForward&, int64_t pack_begin, int64_t pack_end);
DRIVETRAIN_KERNEL int64_t flash_tasks(const FlashForward&);
DRIVETRAIN_KERNEL int64_t flash_scratch_bytes(const FlashForward&);  // that each thread needs, aligned to 64
DRIVETRAIN_KERNEL void flash_forward_cpu(const FlashForward&, void* scratch, int64_t task_begin, int64_t task_end);

struct FlashBackward : FlashAttention {
  FlashHeads out, dout;                          // [B, S, H, D]
  const float* lse = nullptr;                    // [B, H, S]
  uint16_t* dq = nullptr;                        // [B, S, H, D]
  uint16_t *dk = nullptr, *dv = nullptr;         // [B, T, G, D]
  float *head_dk = nullptr, *head_dv = nullptr;  // [B, T, H, D] if G < H, else null
};
DRIVETRAIN_KERNEL int64_t flash_scratch_bytes(const FlashBackward&);
DRIVETRAIN_KERNEL int64_t flash_tasks(const FlashBackward&);
DRIVETRAIN_KERNEL void flash_backward_cpu(const FlashBackward&, void* scratch, int64_t task_begin, int64_t task_end);
// Where G < H, rows of B x T x G behind all tasks: dk and dv from head_dk and head_dv.
DRIVETRAIN_KERNEL void flash_sum_heads_cpu(const FlashBackward&, int64_t row_begin, int64_t row_end);

}  // namespace drivetrain::kernels
