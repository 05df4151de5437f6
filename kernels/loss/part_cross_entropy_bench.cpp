// Cross entropy over half of a vocabulary, both passes.
#include "kernels/common/bench.h"
#include "kernels/loss/part_cross_entropy.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> part_cross_entropy_cases(BenchMemory& memory, Dtype dtype) {
  PartCrossEntropy c;
  c.rows = memory.rows(256), c.columns = 25216, c.valid = 25216, c.vocabulary = 50257, c.ranks = 2, c.dtype = dtype;
  c.logits = memory.numbers(c.rows * c.columns, dtype);
  c.labels = memory.indices(c.rows, c.vocabulary);
  c.part = memory.doubles(c.rows * 3, 0), c.parts = memory.doubles(c.ranks * c.rows * 3, 1);
  c.loss = memory.doubles(c.rows, 0);
  const double bytes = bytes_of(dtype) * static_cast<double>(c.rows * c.columns);
  const std::string shape = shape_text({c.rows, c.columns});
  return {bench_case("part_cross_entropy_begin", shape, bytes, c.rows, c, part_cross_entropy_begin_cpu,
                     DRIVETRAIN_BENCH_CUDA(part_cross_entropy_begin_cuda)),
          bench_case("part_cross_entropy_end", shape, 2 * bytes, c.rows, c, part_cross_entropy_end_cpu,
                     DRIVETRAIN_BENCH_CUDA(part_cross_entropy_end_cuda))};
}

const BenchRegistration part_cross_entropy_registered("part_cross_entropy", part_cross_entropy_cases);

}  // namespace
}  // namespace drivetrain::kernels
