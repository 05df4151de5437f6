// Norms on the CPU against the formula in float64, whose gradient is itself held against finite differences.
#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace drivetrain::kernels {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
constexpr double kNormEpsilon = 1e-5;

Floats random_values(int64_t n, int seed, float centre = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(centre, 1.0F);
  Floats x(n);
  for (float& value : x) value = normal(engine);
  return x;
}

struct Shape {
  int64_t rows, columns;
  bool rms, residual, bias;
  float offset = 0;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (int64_t columns : {1, 7, 64, 768, 1000}) {
    for (int64_t rows : {1, 5, 130}) {
      for (int kind = 0; kind < 8; ++kind)
        all.push_back({rows, columns, (kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0, rows == 5 ? 1.0F : 0.0F});
    }
  }
  return all;
}

// Everything both passes need, for one shape.
struct Problem {
  explicit Problem(const Shape& s)
      : shape(s),
        x(random_values(s.rows * s.columns, 1, 0.5F)),
        delta(random_values(s.rows * s.columns, 2)),
        weight(random_values(s.columns, 3, 1)),
        bias(random_values(s.columns, 4)),
        dy(random_values(s.rows * s.columns, 5)),
        dsum(random_values(s.rows * s.columns, 6)),
        sum(x.size()),
        y(x.size()),
        dx(x.size()),
        mean(s.rows),
        rstd(s.rows),
        partial(2 * blocks() * s.columns, NAN) {}

  int64_t blocks() const { return blocks_of(shape.rows, kNormRows); }

  NormForward forward() {
    return {.x = x.data(),
            .delta = shape.residual ? delta.data() : nullptr,
            .weight = weight.data(),
            .bias = shape.bias ? bias.data() : nullptr,
            .sum = shape.residual ? sum.data() : nullptr,
            .y = y.data(),
            .mean = shape.rms ? nullptr : mean.data(),
            .rstd = rstd.data(),
            .rows = shape.rows,
            .columns = shape.columns,
            .epsilon = kNormEpsilon,
            .rms = shape.rms,
            .offset = shape.offset};
  }

  // The sum is x here: backward does not care where it came from.
  NormBackward backward() {
    return {.dy = dy.data(),
            .dsum = shape.residual ? dsum.data() : nullptr,
            .sum = x.data(),
            .weight = weight.data(),
            .mean = shape.rms ? nullptr : mean.data(),
            .rstd = rstd.data(),
            .dx = dx.data(),
            .partial = partial.data(),
            .rows = shape.rows,
            .columns = shape.columns,
            .rms = shape.rms,
            .offset = shape.offset};
  }
  Floats gains() const {
    Floats gains = weight;
    for (float& gain : gains) gain += shape.offset;
    return gains;
  }

  Shape shape;
  Floats x, delta, weight, bias, dy, dsum, sum, y, dx, mean, rstd, partial;
};

struct Moments {
  double mean, rstd;
};

Moments moments_of(const double* row, int64_t n, bool rms) {
  double mean = 0, square = 0;
  for (int64_t i = 0; i < n && !rms; ++i) mean += row[i] / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) square += (row[i] - mean) * (row[i] - mean) / static_cast<double>(n);
  return {mean, 1 / std::sqrt(square + kNormEpsilon)};
}

Doubles row_of(const Floats& matrix, int64_t row, int64_t columns) {
  return {matrix.begin() + row * columns, matrix.begin() + (row + 1) * columns};
}

double largest(const Doubles& x) {
  double most = 0;
  for (double value : x) most = std::max(most, std::abs(value));
  return most;
}

// A sum of n numbers in 32 lanes is off by about n / 64 + 5 half ulps of the sum of sizes; a few more operations
// follow.
double tolerance(int64_t columns) { return (8.0 + static_cast<double>(columns) / 64.0) * kEpsilon; }

TEST(Norm, forward_is_the_formula) {
  for (const Shape& shape : shapes()) {
    Problem p(shape);
    norm_forward_cpu(p.forward(), 0, shape.rows);
    const int64_t n = shape.columns;
    const Floats gains = p.gains();
    for (int64_t row = 0; row < shape.rows; ++row) {
      Doubles sum = row_of(p.x, row, n);
      for (int64_t i = 0; i < n && shape.residual; ++i) sum[i] = p.x[row * n + i] + p.delta[row * n + i];  // float32
      const Moments m = moments_of(sum.data(), n, shape.rms);
      const double close = tolerance(n) * (1 + largest(sum) * m.rstd);
      ASSERT_NEAR(shape.rms ? 0.0F : p.mean[row], m.mean, tolerance(n) * largest(sum));
      ASSERT_NEAR(p.rstd[row], m.rstd, close * m.rstd);
      for (int64_t i = 0; i < n; ++i) {
        const double bias = shape.bias ? p.bias[i] : 0.0, scaled = (sum[i] - m.mean) * m.rstd * gains[i];
        ASSERT_EQ(shape.residual ? p.sum[row * n + i] : p.x[row * n + i], static_cast<float>(sum[i]));
        ASSERT_NEAR(p.y[row * n + i], scaled + bias,
                    close * (std::abs(gains[i]) + std::abs(scaled)) + kEpsilon * std::abs(bias))
            << shape.rows << " x " << n << ", rms " << shape.rms << ", row " << row << ", column " << i;
      }
    }
  }
}

// d(sum over i of dy y) / d x of one row, by the formula.
Doubles gradient_of(const Doubles& x, const Doubles& dy, const Floats& weight, bool rms) {
  const int64_t n = static_cast<int64_t>(x.size());
  const Moments m = moments_of(x.data(), n, rms);
  double mean_g = 0, mean_gn = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double g = dy[i] * weight[i] / static_cast<double>(n);
    if (!rms) mean_g += g;
    mean_gn += g * (x[i] - m.mean) * m.rstd;
  }
  Doubles dx(n);
  for (int64_t i = 0; i < n; ++i) dx[i] = m.rstd * (dy[i] * weight[i] - mean_g - (x[i] - m.mean) * m.rstd * mean_gn);
  return dx;
}

TEST(Norm, reference_gradient_is_that_of_finite_differences) {
  for (bool rms : {false, true}) {
    const int64_t n = 7;
    const Floats weight = random_values(n, 3, 1);
    Doubles x = row_of(random_values(n, 1), 0, n), dy = row_of(random_values(n, 2), 0, n);
    auto loss = [&] {
      const Moments m = moments_of(x.data(), n, rms);
      double all = 0;
      for (int64_t i = 0; i < n; ++i) all += dy[i] * (x[i] - m.mean) * m.rstd * weight[i];
      return all;
    };
    const Doubles dx = gradient_of(x, dy, weight, rms);
    for (int64_t i = 0; i < n; ++i) {
      const double step = 1e-5, at = x[i];
      x[i] = at + step;
      const double above = loss();
      x[i] = at - step;
      const double below = loss();
      x[i] = at;
      EXPECT_NEAR(dx[i], (above - below) / (2 * step), 1e-8);
    }
  }
}

TEST(Norm, backward_is_the_gradient_plus_what_comes_along_the_residual_stream) {
  for (const Shape& shape : shapes()) {
    if (shape.bias) continue;  // backward has none
    Problem p(shape);
    const int64_t n = shape.columns;
    for (int64_t row = 0; row < shape.rows; ++row) {
      const Moments m = moments_of(row_of(p.x, row, n).data(), n, shape.rms);
      p.mean[row] = static_cast<float>(m.mean);
      p.rstd[row] = static_cast<float>(m.rstd);
    }
    norm_backward_cpu(p.backward(), 0, p.blocks());
    for (int64_t row = 0; row < shape.rows; ++row) {
      const Doubles x = row_of(p.x, row, n), dy = row_of(p.dy, row, n), dx = gradient_of(x, dy, p.gains(), shape.rms);
      const double rstd = p.rstd[row], normal = 1 + largest(x) * rstd;
      const double close = tolerance(n) * rstd * largest(dy) * 5 * normal * normal;  // gains are below 5
      for (int64_t i = 0; i < n; ++i) {
        const double dsum = shape.residual ? p.dsum[row * n + i] : 0.0;
        ASSERT_NEAR(p.dx[row * n + i], dx[i] + dsum, close + kEpsilon * std::abs(dsum))
            << shape.rows << " x " << n << ", rms " << shape.rms << ", row " << row << ", column " << i;
      }
    }
  }
}

TEST(Norm, partial_sums_hold_their_block_of_rows_and_the_last_block_what_is_left) {
  for (bool rms : {false, true}) {
    Problem p({130, 77, rms, false, false});
    norm_forward_cpu(p.forward(), 0, 130);
    norm_backward_cpu(p.backward(), 0, 3);
    for (int64_t block = 0; block < 3; ++block) {
      for (int64_t i = 0; i < 77; ++i) {
        double dweight = 0, dbias = 0, size = 0;
        for (int64_t row = block * kNormRows; row < std::min<int64_t>(130, (block + 1) * kNormRows); ++row) {
          const double dy = p.dy[row * 77 + i], mean = rms ? 0.0 : p.mean[row];
          const double term = dy * (p.x[row * 77 + i] - mean) * p.rstd[row];
          dweight += term;
          dbias += dy;
          size += std::abs(term) + std::abs(dy);
        }
        // 64 additions in order round by half an ulp each, of less than the sum of sizes.
        ASSERT_NEAR(p.partial[block * 77 + i], dweight, 32 * kEpsilon * size);
        ASSERT_NEAR(p.partial[(3 + block) * 77 + i], dbias, 32 * kEpsilon * size);
      }
    }
  }
}

TEST(Norm, rows_and_blocks_may_be_shared_out_in_any_way) {
  for (int64_t columns : {1, 33, 768}) {
    Problem whole({150, columns, false, true, true}), parts(whole);
    norm_forward_cpu(whole.forward(), 0, 150);
    norm_backward_cpu(whole.backward(), 0, 3);
    for (auto [begin, end] : {std::pair{149, 150}, {0, 1}, {1, 70}, {70, 149}})
      norm_forward_cpu(parts.forward(), begin, end);
    for (auto [begin, end] : {std::pair{2, 3}, {1, 2}, {0, 1}}) norm_backward_cpu(parts.backward(), begin, end);
    EXPECT_EQ(whole.y, parts.y);
    EXPECT_EQ(whole.sum, parts.sum);
    EXPECT_EQ(whole.rstd, parts.rstd);
    EXPECT_EQ(whole.dx, parts.dx);
    EXPECT_EQ(whole.partial, parts.partial);
  }
}

TEST(Norm, outputs_may_be_the_inputs_they_are_allowed_to_be) {
  for (int64_t columns : {7, 768}) {
    Problem apart({70, columns, false, true, true}), over_x(apart), over_dsum(apart), over_dy(apart);
    norm_forward_cpu(apart.forward(), 0, 70);
    NormForward forward = over_x.forward();
    forward.sum = over_x.x.data();
    norm_forward_cpu(forward, 0, 70);
    EXPECT_EQ(over_x.x, apart.sum);
    EXPECT_EQ(over_x.y, apart.y);

    over_dsum.mean = over_dy.mean = apart.mean;
    over_dsum.rstd = over_dy.rstd = apart.rstd;
    norm_backward_cpu(apart.backward(), 0, 2);
    NormBackward backward = over_dsum.backward();
    backward.dx = over_dsum.dsum.data();
    norm_backward_cpu(backward, 0, 2);
    EXPECT_EQ(over_dsum.dsum, apart.dx);
    backward = over_dy.backward();
    backward.dx = over_dy.dy.data();
    norm_backward_cpu(backward, 0, 2);
    EXPECT_EQ(over_dy.dy, apart.dx);
    EXPECT_EQ(over_dy.partial, apart.partial);
  }
}

TEST(ColumnSum, adds_to_or_replaces_the_sum_over_rows_in_any_sharing_of_columns) {
  for (int64_t columns : {1, 64, 2500}) {
    const Floats partial = random_values(9 * columns, 1), start = random_values(columns, 2);
    for (bool add : {false, true}) {
      Floats out = start, parts = start;
      const int64_t middle = columns / 3;
      column_sum_cpu({partial.data(), 9, columns, out.data(), add}, 0, columns);
      column_sum_cpu({partial.data(), 9, columns, parts.data(), add}, middle, columns);
      column_sum_cpu({partial.data(), 9, columns, parts.data(), add}, 0, middle);
      EXPECT_EQ(out, parts);
      for (int64_t i = 0; i < columns; ++i) {
        double sum = add ? start[i] : 0.0, size = std::abs(sum);
        for (int64_t row = 0; row < 9; ++row) sum += partial[row * columns + i];
        for (int64_t row = 0; row < 9; ++row) size += std::abs(partial[row * columns + i]);
        ASSERT_NEAR(out[i], sum, 5 * kEpsilon * size);  // ten additions of half an ulp
      }
    }
  }
}

}  // namespace
}  // namespace drivetrain::kernels
