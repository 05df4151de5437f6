// Cross entropy of a chunk of logits: read for maximum and sum, then read and written as the gradient.
#include "kernels/common/bench.h"
#include "kernels/loss/cross_entropy.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> cross_entropy_cases(BenchMemory& memory, Dtype dtype) {
  std::vector<BenchCase> cases;
  for (const int64_t columns : {50304, 32000}) {
    CrossEntropy c;
    c.rows = memory.rows(256), c.columns = columns, c.dtype = dtype;
    c.logits = memory.numbers(c.rows * columns, dtype);
    c.labels = memory.indices(c.rows, columns);
    c.loss = memory.doubles(c.rows, 0);
    cases.push_back(bench_case("cross_entropy", shape_text({c.rows, columns}),
                               3 * bytes_of(dtype) * static_cast<double>(c.rows * columns), c.rows, c,
                               cross_entropy_cpu, DRIVETRAIN_BENCH_CUDA(cross_entropy_cuda)));
  }
  return cases;
}

const BenchRegistration cross_entropy_registered("cross_entropy", cross_entropy_cases);

}  // namespace
}  // namespace drivetrain::kernels
