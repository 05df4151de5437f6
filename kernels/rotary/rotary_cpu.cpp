// Rotary embedding on the CPU: a token at a time, its heads split out of qkv and turned on the way, or put back.
#include "kernels/rotary/rotary.h"

#include "kernels/rotary/heads.h"

namespace drivetrain::kernels {

void rotary_forward_cpu(const Rotary& op, int64_t token_begin, int64_t token_end) {
  const int64_t width = (op.heads + 2 * op.groups) * op.head_dim;
  auto split = [&](int64_t start, Part, void* part, int64_t count, const float* cos, const float* sin) {
    const void* const qkv = row_of(static_cast<const void*>(op.qkv), start, 1, op.dtype);
    move_heads({qkv, row_of(op.bias, start % width, 1, op.dtype), cos, sin, part, count, op.head_dim, pairs_of(op),
                1.0F, op.dtype});
  };
  for_tokens(op, token_begin, token_end, split);
}

void rotary_backward_cpu(const Rotary& op, int64_t token_begin, int64_t token_end) {
  auto join = [&](int64_t start, Part, void* part, int64_t count, const float* cos, const float* sin) {
    move_heads({part, nullptr, cos, sin, row_of(op.qkv, start, 1, op.dtype), count, op.head_dim, pairs_of(op), -1.0F,
                op.dtype});
  };
  for_tokens(op, token_begin, token_end, join);
}

}  // namespace drivetrain::kernels
