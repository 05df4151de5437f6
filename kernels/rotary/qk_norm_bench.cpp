// Norms of queries and keys with rotary embedding: forward one read, one write; backward reads qkv as well.
#include "kernels/common/bench.h"
#include "kernels/rotary/qk_norm.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> qk_norm_cases(BenchMemory& memory, Dtype dtype) {
  QkNormRotary op;
  Rotary& r = op.rotary;
  r.tokens = memory.rows(1024), r.sequence = 1024, r.heads = 16, r.groups = 8, r.head_dim = 128, r.dtype = dtype;
  const int64_t heads = r.heads + 2 * r.groups, n = r.tokens * heads * r.head_dim;
  r.q = memory.numbers(r.tokens * r.heads * r.head_dim, dtype);
  r.k = memory.numbers(r.tokens * r.groups * r.head_dim, dtype);
  r.v = memory.numbers(r.tokens * r.groups * r.head_dim, dtype);
  r.cos = memory.floats(r.sequence * r.head_dim / 2), r.sin = memory.floats(r.sequence * r.head_dim / 2);
  op.q_weight = memory.numbers(r.head_dim, dtype), op.k_weight = memory.numbers(r.head_dim, dtype);
  r.qkv = memory.numbers(n, dtype);
  const double bytes = bytes_of(dtype) * static_cast<double>(n);
  const int64_t blocks = blocks_of(r.tokens, kRotaryRows);
  const std::string shape = shape_text({r.tokens, heads, r.head_dim});
  QkNormRotary back = op;
  back.x = r.qkv, back.rotary.qkv = memory.numbers(n, dtype);
  back.q_partial = memory.floats(blocks * r.heads * r.head_dim);
  back.k_partial = memory.floats(blocks * r.groups * r.head_dim);
  return {bench_case("qk norm and rotary forward", shape, 2 * bytes, r.tokens, op, qk_norm_forward_cpu,
                     DRIVETRAIN_BENCH_CUDA(qk_norm_forward_cuda)),
          bench_case("qk norm and rotary backward", shape, 2.75 * bytes, blocks, back, qk_norm_backward_cpu,
                     DRIVETRAIN_BENCH_CUDA(qk_norm_backward_cuda))};
}

const BenchRegistration qk_norm_registered("qk_norm", qk_norm_cases);

}  // namespace
}  // namespace drivetrain::kernels
