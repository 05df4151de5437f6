// Layer norm with residual, both ways: four arrays pass through memory in each.
#include <algorithm>

#include "kernels/common/bench.h"
#include "kernels/norm/norm.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> norm_cases(BenchMemory& memory, Dtype dtype) {
  std::vector<BenchCase> cases;
  for (const auto& [small_rows, columns] : {std::pair<int64_t, int64_t>{1024, 768}, {512, 4096}}) {
    const int64_t rows = memory.rows(small_rows), n = rows * columns;
    NormForward f;
    f.x = memory.numbers(n, dtype), f.delta = memory.numbers(n, dtype);
    f.weight = memory.numbers(columns, dtype), f.bias = memory.numbers(columns, dtype);
    f.sum = memory.numbers(n, dtype), f.y = memory.numbers(n, dtype);
    f.mean = memory.floats(rows), f.rstd = memory.floats(rows);
    f.rows = rows, f.columns = columns, f.dtype = dtype;
    const double bytes = 4 * bytes_of(dtype) * static_cast<double>(n);
    const std::string shape = shape_text({rows, columns});
    cases.push_back(
        bench_case("norm forward", shape, bytes, rows, f, norm_forward_cpu, DRIVETRAIN_BENCH_CUDA(norm_forward_cuda)));

    NormBackward b;
    b.dy = f.x, b.dsum = f.delta, b.sum = f.sum, b.weight = f.weight, b.mean = f.mean, b.rstd = f.rstd, b.dx = f.y;
    const int64_t blocks = blocks_of(rows, kNormRows);
    b.partial = memory.floats(2 * std::max(blocks, blocks_of(rows, norm_rows_cuda(rows))) * columns);
    b.rows = rows, b.columns = columns, b.dtype = dtype;
    cases.push_back(bench_case("norm backward", shape, bytes, blocks, b, norm_backward_cpu,
                               DRIVETRAIN_BENCH_CUDA(norm_backward_cuda)));
  }
  return cases;
}

const BenchRegistration norm_registered("norm", norm_cases);

}  // namespace
}  // namespace drivetrain::kernels
