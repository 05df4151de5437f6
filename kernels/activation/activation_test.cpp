// Activations on the CPU against their formulas in float64, whose slopes are themselves held against finite
// differences.
#include "kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace drivetrain::kernels {
namespace {

using Floats = std::vector<float>;

constexpr Activation kKinds[] = {Activation::gelu_tanh, Activation::gelu,  Activation::silu,       Activation::relu,
                                 Activation::swiglu,    Activation::geglu, Activation::geglu_tanh, Activation::reglu};

// The function of x alone, which is the gate of a gated one.
Activation function_of(Activation kind) {
  switch (kind) {
    case Activation::swiglu:
      return Activation::silu;
    case Activation::geglu:
      return Activation::gelu;
    case Activation::geglu_tanh:
      return Activation::gelu_tanh;
    case Activation::reglu:
      return Activation::relu;
    default:
      return kind;
  }
}

// A few float32 roundings of numbers of the result's size; where the result is small beside x, of x's.
constexpr double kClose = 4 * std::numeric_limits<float>::epsilon();

Floats random_values(int64_t n, int seed, float spread = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  Floats x(n);
  for (float& value : x) value = normal(engine);
  return x;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// y of one element; `gate` is x itself, and `up` 1, where nothing is gated.
double value_of(Activation kind, double gate, double up) {
  switch (function_of(kind)) {
    case Activation::gelu_tanh:
      return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case Activation::gelu:
      return 0.5 * gate * std::erfc(-gate * std::sqrt(0.5)) * up;
    case Activation::relu:
      return std::max(gate, 0.0) * up;
    default:
      return gate * sigmoid(gate) * up;
  }
}

// d y / d gate
double slope_of(Activation kind, double x, double up) {
  const double line = std::sqrt(2 / M_PI), t = std::tanh(line * (x + 0.044715 * x * x * x));
  switch (function_of(kind)) {
    case Activation::gelu_tanh:
      return up * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * line * (1 + 3 * 0.044715 * x * x));
    case Activation::gelu:
      return up * (0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI));
    case Activation::relu:
      return x > 0 ? up : 0;
    default:
      return up * sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  }
}

struct Shape {
  Activation kind;
  int64_t rows, columns;
  bool bias, partial;

  int64_t width() const { return is_gated(kind) ? 2 * columns : columns; }
  int64_t blocks() const { return blocks_of(rows, kActivationRows); }
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (Activation kind : kKinds) {
    for (int64_t rows : {1, 64, 130}) {
      for (int64_t columns : {1, 7, 64, 1000}) {
        for (int with = 0; with < 4; ++with) all.push_back({kind, rows, columns, (with & 1) != 0, (with & 2) != 0});
      }
    }
  }
  return all;
}

struct Problem {
  explicit Problem(const Shape& s)
      : shape(s),
        x(random_values(s.rows * s.width(), 1, 3)),
        bias(random_values(s.width(), 2)),
        dy(random_values(s.rows * s.columns, 3)),
        y(dy.size()),
        dx(x.size()),
        partial(s.blocks() * s.width(), NAN) {}

  ActivationForward forward() {
    return {.x = x.data(),
            .bias = shape.bias ? bias.data() : nullptr,
            .y = y.data(),
            .rows = shape.rows,
            .columns = shape.columns,
            .kind = shape.kind};
  }
  ActivationBackward backward() {
    return {.x = x.data(),
            .bias = shape.bias ? bias.data() : nullptr,
            .dy = dy.data(),
            .dx = dx.data(),
            .partial = shape.partial ? partial.data() : nullptr,
            .rows = shape.rows,
            .columns = shape.columns,
            .kind = shape.kind};
  }
  // x + bias as float32 rounds it.
  double input(int64_t row, int64_t column) const {
    const float value = x[row * shape.width() + column];
    return shape.bias ? value + bias[column] : value;
  }
  double up(int64_t row, int64_t column) const {
    return is_gated(shape.kind) ? input(row, shape.columns + column) : 1.0;
  }

  Shape shape;
  Floats x, bias, dy, y, dx, partial;
};

// How far the gradient of one element may be off: slopes lie within [-0.2, 1.2], products before them are of x's size.
double slack(double dy, double gate, double up) {
  return kClose * std::abs(dy) * (1 + std::abs(gate)) * (1 + std::abs(up));
}

TEST(Activation, forward_is_the_formula) {
  for (const Shape& shape : shapes()) {
    Problem p(shape);
    activation_forward_cpu(p.forward(), 0, shape.rows);
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t i = 0; i < shape.columns; ++i) {
        const double gate = p.input(row, i), up = p.up(row, i);
        ASSERT_NEAR(p.y[row * shape.columns + i], value_of(shape.kind, gate, up), kClose * std::abs(gate * up))
            << "kind " << static_cast<int>(shape.kind) << " at " << gate << ", " << up;
      }
    }
  }
}

TEST(Activation, reference_slope_is_that_of_finite_differences) {
  for (Activation kind : kKinds) {
    for (double x = -6; x < 6; x += 0.37) {
      const double step = 1e-5, rise = value_of(kind, x + step, 1.7) - value_of(kind, x - step, 1.7);
      EXPECT_NEAR(slope_of(kind, x, 1.7), rise / (2 * step), 1e-8) << x;
    }
  }
}

TEST(Activation, backward_is_the_gradient) {
  for (const Shape& shape : shapes()) {
    Problem p(shape);
    activation_backward_cpu(p.backward(), 0, shape.blocks());
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t i = 0; i < shape.columns; ++i) {
        const double gate = p.input(row, i), up = p.up(row, i), dy = p.dy[row * shape.columns + i];
        const float* dx = &p.dx[row * shape.width() + i];
        ASSERT_NEAR(dx[0], dy * slope_of(shape.kind, gate, up), slack(dy, gate, up)) << "at " << gate << ", " << up;
        if (!is_gated(shape.kind)) continue;
        ASSERT_NEAR(dx[shape.columns], dy * value_of(shape.kind, gate, 1), slack(dy, gate, up))
            << "at " << gate << ", " << up;
      }
    }
  }
}

TEST(Activation, partial_sums_hold_their_block_of_rows_and_the_last_block_what_is_left) {
  for (Activation kind : kKinds) {
    Problem p({kind, 130, 33, true, true});
    activation_backward_cpu(p.backward(), 0, 3);
    const int64_t width = p.shape.width();
    for (int64_t at = 0; at < 3 * width; ++at) {
      const int64_t block = at / width, last = std::min<int64_t>(130, (block + 1) * kActivationRows);
      double sum = 0, size = 0;
      for (int64_t row = block * kActivationRows; row < last; ++row) sum += p.dx[row * width + at % width];
      for (int64_t row = block * kActivationRows; row < last; ++row) size += std::abs(p.dx[row * width + at % width]);
      // 64 additions in order round by half an ulp each, of less than the sum of sizes.
      ASSERT_NEAR(p.partial[at], sum, 32 * std::numeric_limits<float>::epsilon() * size);
    }
  }
}

TEST(Activation, far_from_zero_it_is_the_identity_or_nothing) {
  for (Activation kind : kKinds) {
    Problem p({kind, 1, 8, false, false});
    p.x = {20, 100, 1e4, 1e18, -20, -100, -1e4, -1e18};
    p.x.resize(p.shape.width(), 1.0F);
    std::fill(p.dy.begin(), p.dy.end(), 1.0F);
    activation_forward_cpu(p.forward(), 0, 1);
    activation_backward_cpu(p.backward(), 0, 1);
    for (int64_t i = 0; i < 8; ++i) {
      const double one = i < 4 ? 1 : 0;
      EXPECT_NEAR(p.y[i], one * p.x[i], one * 1e-7 * p.x[i] + 1e-7) << p.x[i];
      EXPECT_NEAR(p.dx[i], one, 1e-7) << p.x[i];
    }
  }
}

TEST(Activation, nan_stays_nan) {
  for (Activation kind : kKinds) {
    Problem p({kind, 1, 40, true, true});
    std::fill(p.x.begin(), p.x.end(), NAN);
    activation_forward_cpu(p.forward(), 0, 1);
    activation_backward_cpu(p.backward(), 0, 1);
    for (float value : p.y) EXPECT_TRUE(std::isnan(value));
    // The slope of relu is 1 or 0 everywhere.
    for (float value : p.dx) EXPECT_TRUE(std::isnan(value) || function_of(kind) == Activation::relu);
  }
}

TEST(Activation, rows_and_blocks_may_be_shared_out_in_any_way) {
  for (Activation kind : kKinds) {
    Problem whole({kind, 150, 45, true, true}), parts(whole);
    activation_forward_cpu(whole.forward(), 0, 150);
    activation_backward_cpu(whole.backward(), 0, 3);
    for (auto [begin, end] : {std::pair{149, 150}, {0, 1}, {1, 70}, {70, 149}}) {
      activation_forward_cpu(parts.forward(), begin, end);
    }
    for (auto [begin, end] : {std::pair{2, 3}, {1, 2}, {0, 1}}) activation_backward_cpu(parts.backward(), begin, end);
    EXPECT_EQ(whole.y, parts.y);
    EXPECT_EQ(whole.dx, parts.dx);
    EXPECT_EQ(whole.partial, parts.partial);
  }
}

TEST(Activation, the_gradient_may_take_the_place_of_the_input) {
  for (Activation kind : kKinds) {
    for (int64_t columns : {5, 64, 333}) {
      Problem apart({kind, 70, columns, true, true}), over_x(apart);
      activation_backward_cpu(apart.backward(), 0, 2);
      ActivationBackward backward = over_x.backward();
      backward.dx = over_x.x.data();
      activation_backward_cpu(backward, 0, 2);
      EXPECT_EQ(over_x.x, apart.dx);
      EXPECT_EQ(over_x.partial, apart.partial);
    }
  }
}

// A vector's tail and its body must agree, or the bits of an element would depend on where it stands.
TEST(Activation, an_element_has_the_same_bits_wherever_it_stands_in_a_row) {
  for (Activation kind : kKinds) {
    Problem row({kind, 1, 101, false, false}), column({kind, 101, 1, false, false});
    column.dy = row.dy;
    const int64_t parts = row.shape.width() / 101;
    for (int64_t i = 0; i < 101 * parts; ++i) column.x[i % 101 * parts + i / 101] = row.x[i];
    activation_forward_cpu(row.forward(), 0, 1);
    activation_backward_cpu(row.backward(), 0, 1);
    activation_forward_cpu(column.forward(), 0, 101);
    activation_backward_cpu(column.backward(), 0, 2);
    EXPECT_EQ(row.y, column.y);
    for (int64_t i = 0; i < 101 * parts; ++i) EXPECT_EQ(row.dx[i], column.dx[i % 101 * parts + i / 101]);
  }
}

}  // namespace
}  // namespace drivetrain::kernels
