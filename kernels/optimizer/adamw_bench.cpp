// Adam in one pass: value, both moments and the gradient are read and written (the gradient as zeros).
#include "kernels/common/bench.h"
#include "kernels/optimizer/adamw.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> adam_cases(BenchMemory& memory, Dtype) {
  std::vector<BenchCase> cases;
  for (const bool zeroing : {true, false}) {
    Adam a;
    a.n = memory.rows(16'000'000);
    a.value = memory.floats(a.n), a.m = memory.floats(a.n), a.v = memory.floats(a.n), a.grad = memory.floats(a.n);
    a.zero_grad = zeroing;
    a.scalars.hyper = memory.doubles(3, 1e-4), a.scalars.grad_scale = memory.doubles(1, 1);
    a.scalars.skip = static_cast<const bool*>(memory.zeros(1)),
    a.scalars.step = static_cast<const int64_t*>(memory.zeros(8));
    cases.push_back(bench_case(zeroing ? "adam, gradient zeroed" : "adam", shape_text({a.n}),
                               (zeroing ? 32.0 : 28.0) * static_cast<double>(a.n), a.n, a, adam_cpu,
                               DRIVETRAIN_BENCH_CUDA(adam_cuda)));
  }
  return cases;
}

const BenchRegistration adam_registered("adam", adam_cases);

}  // namespace
}  // namespace drivetrain::kernels
