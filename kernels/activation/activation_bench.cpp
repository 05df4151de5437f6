// The MLP's activations, both ways, with bias and its partial sums.
#include "kernels/activation/activation.h"
#include "kernels/common/bench.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> activation_cases(BenchMemory& memory, Dtype dtype) {
  std::vector<BenchCase> cases;
  const int64_t rows = memory.rows(1024), columns = 3072, n = rows * columns;
  for (const auto& [name, kind] :
       {std::pair{"gelu_tanh", Activation::gelu_tanh}, {"gelu", Activation::gelu}, {"swiglu", Activation::swiglu}}) {
    const int64_t wide = is_gated(kind) ? 2 : 1;
    ActivationForward f;
    f.x = memory.numbers(wide * n, dtype), f.bias = memory.numbers(wide * columns, dtype),
    f.y = memory.numbers(n, dtype);
    f.rows = rows, f.columns = columns, f.kind = kind, f.dtype = dtype;
    const double array = bytes_of(dtype) * static_cast<double>(n), w = static_cast<double>(wide);
    const std::string shape = shape_text({rows, columns});
    cases.push_back(bench_case(std::string(name) + " forward", shape, (w + 1) * array, rows, f, activation_forward_cpu,
                               DRIVETRAIN_BENCH_CUDA(activation_forward_cuda)));
    ActivationBackward b;
    const int64_t blocks = blocks_of(rows, kActivationRows);
    b.x = f.x, b.bias = f.bias, b.dy = f.y, b.dx = memory.numbers(wide * n, dtype);
    b.partial = memory.floats(blocks * wide * columns);
    b.rows = rows, b.columns = columns, b.kind = kind, b.dtype = dtype;
    cases.push_back(bench_case(std::string(name) + " backward", shape, (2 * w + 1) * array, blocks, b,
                               activation_backward_cpu, DRIVETRAIN_BENCH_CUDA(activation_backward_cuda)));
  }
  return cases;
}

const BenchRegistration activation_registered("activation", activation_cases);

}  // namespace
}  // namespace drivetrain::kernels
