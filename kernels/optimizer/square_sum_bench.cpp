// Sums of squares: one read.
#include "kernels/common/bench.h"
#include "kernels/optimizer/square_sum.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> square_sum_cases(BenchMemory& memory, Dtype dtype) {
  SquareSum s;
  s.n = memory.rows(16'000'000), s.dtype = dtype;
  s.x = memory.numbers(s.n, dtype);
  const int64_t blocks = blocks_of(s.n, kSquareBlock);
  s.sums = memory.doubles(blocks, 0);
  return {bench_case("square_sum", shape_text({s.n}), bytes_of(dtype) * static_cast<double>(s.n), blocks, s,
                     square_sum_cpu, DRIVETRAIN_BENCH_CUDA(square_sum_cuda))};
}

const BenchRegistration square_sum_registered("square_sum", square_sum_cases);

}  // namespace
}  // namespace drivetrain::kernels
