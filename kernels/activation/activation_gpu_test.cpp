// Activations on CUDA against float64, forward and backward, with and without bias, in wide and single accesses.
#include "kernels/activation/activation.h"

#include "kernels/common/device_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class ActivationOnGpu : public DeviceTest {};

constexpr Activation kKinds[] = {Activation::gelu_tanh, Activation::gelu,  Activation::silu,       Activation::relu,
                                 Activation::swiglu,    Activation::geglu, Activation::geglu_tanh, Activation::reglu};
constexpr double kPi = 3.14159265358979323846;

double value(Activation kind, double x) {
  if (kind == Activation::gelu_tanh || kind == Activation::geglu_tanh)
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)));
  if (kind == Activation::relu || kind == Activation::reglu) return std::max(x, 0.0);
  if (kind == Activation::gelu || kind == Activation::geglu) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return x / (1 + std::exp(-x));
}

double slope(Activation kind, double x) {
  if (kind == Activation::relu || kind == Activation::reglu) return x > 0 ? 1 : 0;
  const double step = 1e-5;  // central difference: error of 1e-10
  return (value(kind, x + step) - value(kind, x - step)) / (2 * step);
}

struct Case {
  int64_t rows, columns, skip;
  bool bias, in_place, partial;
};
constexpr Case kCases[] = {{37, 64, 0, true, false, true}, {65, 1032, 0, false, true, true},
                           {130, 33, 0, true, true, true}, {5, 64, 1, true, false, false},
                           {1, 1, 0, false, false, true},  {0, 64, 0, true, false, true}};

template <class Body>
void for_all_cases(Body body) {
  for (const Case& c : kCases) {
    for (const Activation kind : kKinds) {
      for (const Dtype dtype : kDtypes) {
        SCOPED_TRACE(testing::Message() << c.rows << " x " << c.columns << " kind " << static_cast<int>(kind)
                                        << " dtype " << static_cast<int>(dtype));
        body(c, kind, dtype);
      }
    }
  }
}

// x + bias in float64.
std::vector<double> biased(const Case& c, int64_t width, const std::vector<double>& x,
                           const std::vector<double>& bias) {
  std::vector<double> sum = x;
  for (size_t i = 0; c.bias && i < sum.size(); ++i) sum[i] += bias[i % static_cast<size_t>(width)];
  return sum;
}

TEST_F(ActivationOnGpu, forward_equals_float64) {
  for_all_cases([](const Case& c, Activation kind, Dtype dtype) {
    const int64_t width = is_gated(kind) ? 2 * c.columns : c.columns;
    Numbers x(dtype, random_values(c.rows * width, 1, 4), c.skip), bias(dtype, random_values(width, 2), c.skip);
    Numbers y(dtype, c.rows * c.columns, c.skip);
    const ActivationForward op{x.data(), c.bias ? bias.data() : nullptr, y.data(), c.rows, c.columns, kind, dtype};
    run_repeatedly({&y}, [&](void* stream) { return activation_forward_cuda(op, stream); });

    const std::vector<double> in = biased(c, width, x.first(), bias.first());
    std::vector<double> wanted;
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t i = 0; i < c.columns; ++i) {
        const double gate = in[static_cast<size_t>(r * width + i)];
        const double up = is_gated(kind) ? in[static_cast<size_t>(r * width + c.columns + i)] : 1;
        wanted.push_back(value(kind, gate) * up);
      }
    }
    expect_close(y.now(), wanted, rounding(dtype), 5e-6, "y");
  });
}

TEST_F(ActivationOnGpu, backward_equals_float64) {
  for_all_cases([](const Case& c, Activation kind, Dtype dtype) {
    const bool gated = is_gated(kind);
    const int64_t width = gated ? 2 * c.columns : c.columns;
    Numbers x(dtype, random_values(c.rows * width, 1, 4), c.skip), bias(dtype, random_values(width, 2), c.skip);
    Numbers dy(dtype, random_values(c.rows * c.columns, 3), c.skip), out(dtype, c.rows * width, c.skip);
    Numbers partial(Dtype::f32, blocks_of(c.rows, kActivationRows) * width, c.skip);
    Numbers& dx = c.in_place ? x : out;
    const ActivationBackward op{x.data(),
                                c.bias ? bias.data() : nullptr,
                                dy.data(),
                                dx.data(),
                                c.partial ? partial.as<float>() : nullptr,
                                c.rows,
                                c.columns,
                                kind,
                                dtype};
    run_repeatedly({&x, &out, &partial}, [&](void* stream) { return activation_backward_cuda(op, stream); });

    const std::vector<double> in = biased(c, width, x.first(), bias.first()), up_gradient = dy.first();
    std::vector<double> wanted(in.size()), sums(partial.first().size());
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t i = 0; i < c.columns; ++i) {
        const size_t gate = static_cast<size_t>(r * width + i), up = gate + static_cast<size_t>(c.columns);
        const double g = up_gradient[static_cast<size_t>(r * c.columns + i)];
        wanted[gate] = g * slope(kind, in[gate]) * (gated ? in[up] : 1);
        if (gated) wanted[up] = g * value(kind, in[gate]);
      }
      for (int64_t i = 0; i < width; ++i) {
        sums[static_cast<size_t>(r / kActivationRows * width + i)] += wanted[static_cast<size_t>(r * width + i)];
      }
    }
    expect_close(dx.now(), wanted, rounding(dtype), 1e-5, "dx");
    if (c.partial) expect_close(partial.now(), sums, 4e-6, 1e-4, "partial");
  });
}

}  // namespace
}  // namespace drivetrain::kernels
