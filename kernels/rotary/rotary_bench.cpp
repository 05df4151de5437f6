// Rotary embedding from the fused q, k, v matrix to attention's tensors and back: one read, one write.
#include "kernels/common/bench.h"
#include "kernels/rotary/rotary.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> rotary_cases(BenchMemory& memory, Dtype dtype) {
  Rotary r;
  r.tokens = memory.rows(1024), r.sequence = 1024, r.heads = 12, r.groups = 12, r.head_dim = 64, r.dtype = dtype;
  const int64_t heads = r.heads + 2 * r.groups, part = r.tokens * r.heads * r.head_dim;
  r.qkv = memory.numbers(r.tokens * heads * r.head_dim, dtype);
  r.q = memory.numbers(part, dtype), r.k = memory.numbers(part, dtype), r.v = memory.numbers(part, dtype);
  r.cos = memory.floats(r.sequence * r.head_dim / 2), r.sin = memory.floats(r.sequence * r.head_dim / 2);
  const double bytes = 2 * bytes_of(dtype) * static_cast<double>(r.tokens * heads * r.head_dim);
  const std::string shape = shape_text({r.tokens, heads, r.head_dim});
  return {bench_case("rotary forward", shape, bytes, r.tokens, r, rotary_forward_cpu,
                     DRIVETRAIN_BENCH_CUDA(rotary_forward_cuda)),
          bench_case("rotary backward", shape, bytes, r.tokens, r, rotary_backward_cpu,
                     DRIVETRAIN_BENCH_CUDA(rotary_backward_cuda))};
}

const BenchRegistration rotary_registered("rotary", rotary_cases);

}  // namespace
}  // namespace drivetrain::kernels
