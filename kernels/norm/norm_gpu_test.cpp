// Norm on CUDA against float64, for every way a row can be held: by a warp, by a block, walked over, one element at a
// time.
#include <algorithm>

#include "kernels/common/device_test.h"
#include "kernels/norm/norm.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class NormOnGpu : public DeviceTest {};

struct Case {
  int64_t rows, columns;
  int64_t skip = 0;  // elements before the first: spoils alignment
  bool rms = false, delta = true, bias = true, in_place = false;
  float offset = 0;
  int64_t blocks() const { return blocks_of(rows, norm_rows_cuda(rows)); }
};

const Case kCases[] = {
    {3, 64},
    {70, 768, 0, true, true, false, false, 1},
    {2, 1000, 0, false, false},
    {5, 2048, 0, false, true, true, true},
    {2, 4096},
    {1, 8192, 0, true, true, false},
    {2, 8200},
    {3, 33, 0, false, true, true, true, 1},
    {2, 64, 1},
    {1, 1},
    {0, 64},
};

std::vector<double> matrix(const Case& c, uint64_t seed) { return random_values(c.rows * c.columns, seed); }

struct Moments {
  std::vector<double> mean, rstd;
};

Moments moments(const Case& c, const std::vector<double>& x, double epsilon) {
  Moments result;
  const double n = static_cast<double>(c.columns);
  for (int64_t r = 0; r < c.rows; ++r) {
    double sum = 0, squares = 0;
    const double* row = x.data() + r * c.columns;
    for (int64_t i = 0; i < c.columns; ++i) sum += row[i];
    const double mean = c.rms ? 0 : sum / n;
    for (int64_t i = 0; i < c.columns; ++i) squares += (row[i] - mean) * (row[i] - mean);
    result.mean.push_back(mean);
    result.rstd.push_back(1 / std::sqrt(squares / n + epsilon));
  }
  return result;
}

void forward_case(const Case& c, Dtype dtype) {
  Numbers x(dtype, matrix(c, 1), c.skip), delta(dtype, matrix(c, 2), c.skip),
      weight(dtype, random_values(c.columns, 3), c.skip);
  Numbers bias(dtype, random_values(c.columns, 4), c.skip), sum(dtype, c.rows * c.columns, c.skip);
  Numbers y(dtype, c.rows * c.columns, c.skip), mean(Dtype::f32, c.rows), rstd(Dtype::f32, c.rows);
  NormForward op{.x = x.data(),
                 .weight = weight.data(),
                 .y = y.data(),
                 .rstd = rstd.as<float>(),
                 .rows = c.rows,
                 .columns = c.columns,
                 .epsilon = 1e-5,
                 .rms = c.rms,
                 .dtype = dtype,
                 .offset = c.offset};
  Numbers& kept = c.in_place || !c.delta ? x : sum;
  if (c.delta) op.delta = delta.data(), op.sum = kept.data();
  if (c.bias) op.bias = bias.data();
  if (!c.rms) op.mean = mean.as<float>();
  run_repeatedly({&x, &sum, &y, &mean, &rstd}, [&](void* stream) { return norm_forward_cuda(op, stream); });

  std::vector<double> added = x.first();
  const std::vector<double> more = delta.first(), gain = weight.first(), shift = bias.first();
  for (size_t i = 0; c.delta && i < added.size(); ++i) added[i] += more[i];
  expect_close(kept.now(), added, rounding(dtype), 0, "sum");
  const std::vector<double> rounded = kept.now();  // what the norm is of
  const Moments wanted = moments(c, rounded, 1e-5);
  if (!c.rms) expect_close(mean.now(), wanted.mean, 1e-5, 1e-6, "mean");
  expect_close(rstd.now(), wanted.rstd, 1e-5, 0, "rstd");
  std::vector<double> normal = rounded;
  for (size_t i = 0; i < normal.size(); ++i) {
    const size_t row = i / static_cast<size_t>(c.columns), column = i % static_cast<size_t>(c.columns);
    normal[i] = (rounded[i] - wanted.mean[row]) * wanted.rstd[row] * (c.offset + gain[column]);
    if (c.bias) normal[i] += shift[column];
  }
  expect_close(y.now(), normal, rounding(dtype), 2e-5, "y");
}

TEST_F(NormOnGpu, forward_equals_float64_for_every_way_to_hold_a_row) {
  for (const Case& c : kCases) {
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.columns << " dtype " << static_cast<int>(dtype));
      forward_case(c, dtype);
    }
  }
}

struct Gradients {
  std::vector<double> dx, partial;
};

Gradients gradients(const Case& c, const Moments& of, const std::vector<double>& dy, const std::vector<double>& sum,
                    const std::vector<double>& dsum, const std::vector<double>& weight) {
  const size_t n = static_cast<size_t>(c.columns), blocks = static_cast<size_t>(c.blocks());
  Gradients result{std::vector<double>(dy.size()), std::vector<double>(2 * blocks * n)};
  for (size_t r = 0; r < static_cast<size_t>(c.rows); ++r) {
    double mean_g = 0, mean_gx = 0;
    const auto gain = [&](size_t i) { return c.offset + weight[i]; };
    const auto normal = [&](size_t i) { return (sum[r * n + i] - of.mean[r]) * of.rstd[r]; };
    for (size_t i = 0; i < n; ++i) {
      mean_g += c.rms ? 0 : dy[r * n + i] * gain(i) / static_cast<double>(n);
      mean_gx += dy[r * n + i] * gain(i) * normal(i) / static_cast<double>(n);
    }
    for (size_t i = 0; i < n; ++i) {
      const double g = dy[r * n + i], block = static_cast<double>(r) / static_cast<double>(norm_rows_cuda(c.rows));
      result.dx[r * n + i] =
          (g * gain(i) - mean_g - normal(i) * mean_gx) * of.rstd[r] + (c.delta ? dsum[r * n + i] : 0);
      result.partial[static_cast<size_t>(block) * n + i] += g * normal(i);
      result.partial[(blocks + static_cast<size_t>(block)) * n + i] += g;
    }
  }
  return result;
}

void backward_case(const Case& c, Dtype dtype) {
  Numbers dy(dtype, matrix(c, 1), c.skip), sum(dtype, matrix(c, 2), c.skip), dsum(dtype, matrix(c, 3), c.skip);
  Numbers weight(dtype, random_values(c.columns, 4), c.skip), out(dtype, c.rows * c.columns, c.skip);
  Numbers partial(Dtype::f32, 2 * c.blocks() * c.columns, c.skip);
  const Moments of = moments(c, sum.first(), 1e-5);
  Numbers mean(Dtype::f32, of.mean), rstd(Dtype::f32, of.rstd);
  Numbers& dx = !c.in_place ? out : c.delta ? dsum : dy;
  NormBackward op{.dy = dy.data(),
                  .sum = sum.data(),
                  .weight = weight.data(),
                  .rstd = rstd.as<float>(),
                  .dx = dx.data(),
                  .partial = partial.as<float>(),
                  .rows = c.rows,
                  .columns = c.columns,
                  .rms = c.rms,
                  .dtype = dtype,
                  .offset = c.offset};
  if (c.delta) op.dsum = dsum.data();
  if (!c.rms) op.mean = mean.as<float>();
  run_repeatedly({&dy, &dsum, &out, &partial}, [&](void* stream) { return norm_backward_cuda(op, stream); });

  const Gradients wanted = gradients(c, of, dy.first(), sum.first(), dsum.first(), weight.first());
  expect_close(dx.now(), wanted.dx, rounding(dtype), 2e-5, "dx");
  expect_close(partial.now(), wanted.partial, 2e-6, 1e-4, "partial");
}

TEST_F(NormOnGpu, backward_equals_float64_for_every_way_to_hold_a_row) {
  for (Case c : kCases) {
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.columns << " dtype " << static_cast<int>(dtype));
      backward_case(c, dtype);
      c.in_place = true, c.delta = !c.delta;
      if (c.columns < 1024) backward_case(c, dtype);
      c.delta = !c.delta;
    }
  }
}

// Of each size that blocks of rows have, with a last one that is not full.
TEST_F(NormOnGpu, backward_equals_float64_for_every_size_of_blocks) {
  for (const int64_t rows : {2050, 4100, 8200}) {
    SCOPED_TRACE(testing::Message() << rows << " rows");
    backward_case({rows, 40}, Dtype::bf16);
  }
}

// A multiprocessor has a block at a time, and an H100 has 132 of them.
TEST(NormBlocks, are_enough_for_a_gpu_from_few_rows_on_and_no_more_than_the_sums_need) {
  for (int64_t rows = 2048; rows <= 70000; rows += 61) {
    const int64_t blocks = blocks_of(rows, norm_rows_cuda(rows));
    EXPECT_GE(blocks, 128) << rows;
    EXPECT_LE(blocks, std::max<int64_t>(256, blocks_of(rows, kNormRows))) << rows;
  }
}

TEST_F(NormOnGpu, column_sums_equal_float64_set_or_added_to) {
  for (const int64_t rows : {0, 1, 31, 200}) {
    for (const Dtype dtype : kDtypes) {
      for (const bool add : {false, true}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, dtype " << static_cast<int>(dtype) << " add " << add);
        const int64_t columns = 45;
        Numbers partial(Dtype::f32, random_values(rows * columns, 1)), out(dtype, random_values(columns, 2));
        const ColumnSum op{partial.as<float>(), rows, columns, out.data(), add, dtype};
        run_repeatedly({&out}, [&](void* stream) { return column_sum_cuda(op, stream); });
        std::vector<double> wanted = add ? out.first() : std::vector<double>(static_cast<size_t>(columns));
        const std::vector<double> parts = partial.first();
        for (size_t i = 0; i < parts.size(); ++i) wanted[i % static_cast<size_t>(columns)] += parts[i];
        expect_close(out.now(), wanted, rounding(dtype), 2e-5, "sum");
      }
    }
  }
}

TEST_F(NormOnGpu, sums_of_blocks_of_rows_equal_float64) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{0, 8}, {1, 45}, {63, 256}, {64, 264}, {200, 2304}}) {
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns << " dtype " << static_cast<int>(dtype));
      const int64_t blocks = blocks_of(rows, kNormRows);
      Numbers x(dtype, random_values(rows * columns, 1)), partial(Dtype::f32, blocks * columns);
      const ColumnParts op{x.data(), partial.as<float>(), rows, columns, dtype};
      run_repeatedly({&partial}, [&](void* stream) { return column_parts_cuda(op, stream); });
      std::vector<double> wanted(static_cast<size_t>(blocks * columns));
      const std::vector<double> values = x.first();
      for (int64_t i = 0; i < rows * columns; ++i)
        wanted[static_cast<size_t>(i / columns / kNormRows * columns + i % columns)] += values[static_cast<size_t>(i)];
      expect_close(partial.now(), wanted, 2e-6, 2e-5, "partial");
    }
  }
}

}  // namespace
}  // namespace drivetrain::kernels
