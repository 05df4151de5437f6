// Cross entropy on CUDA against float64: rows that start anywhere, rows that do not count, large logits.
#include "kernels/loss/cross_entropy.h"

#include "kernels/common/device_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class CrossEntropyOnGpu : public DeviceTest {};

struct Case {
  int64_t rows, columns, skip;
  double spread;
  float factor = 1, cap = 0;  // of the logits
};
constexpr Case kCases[] = {
    {3, 1000, 0, 4}, {4, 1003, 0, 4},          {3, 50257, 1, 4},        {2, 5, 3, 4}, {2, 1, 0, 4}, {3, 640, 0, 60},
    {0, 8, 0, 1},    {4, 1003, 1, 9, 0.5F, 5}, {3, 640, 0, 9, 0.25F, 0}};

void compare(const Case& c, Dtype dtype, bool gradient) {
  const double scale = 0.5;
  Numbers logits(dtype, random_values(c.rows * c.columns, 1, c.spread), c.skip);
  std::vector<int64_t> label_values;
  for (int64_t r = 0; r < c.rows; ++r) label_values.push_back(r == 1 ? -100 : (r * 7919 + c.columns - 1) % c.columns);
  Array<int64_t> labels(label_values);
  Array<double> loss(std::vector<double>(static_cast<size_t>(c.rows), 7777.0));
  CrossEntropy op{logits.data(), labels.as<int64_t>(), loss.as<double>(), c.rows, c.columns, gradient, scale, dtype};
  op.logit_scale = c.factor, op.softcap = c.cap;
  run_repeatedly({&logits, &loss}, [&](void* stream) { return cross_entropy_cuda(op, stream); });

  std::vector<double> x = logits.first(), wanted_loss, wanted = x, slope(x.size(), c.factor);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] *= c.factor;
    if (c.cap > 0) x[i] = c.cap * std::tanh(x[i] / c.cap), slope[i] *= 1 - x[i] * x[i] / c.cap / c.cap;
  }
  for (int64_t r = 0; r < c.rows; ++r) {
    const int64_t label = label_values[static_cast<size_t>(r)];
    const double* row = x.data() + r * c.columns;
    double top = row[0], sum = 0;
    for (int64_t i = 0; i < c.columns; ++i) top = std::max(top, row[i]);
    for (int64_t i = 0; i < c.columns; ++i) sum += std::exp(row[i] - top);
    wanted_loss.push_back(label < 0 ? 0 : std::log(sum) + top - row[label]);
    for (int64_t i = 0; gradient && i < c.columns; ++i) {
      const double share = std::exp(row[i] - top) / sum - (i == label ? 1 : 0);
      wanted[static_cast<size_t>(r * c.columns + i)] =
          label < 0 ? 0 : scale * share * slope[static_cast<size_t>(r * c.columns + i)];
    }
  }
  expect_close(loss.now(), wanted_loss, 2e-6, 2e-6, "loss");
  // Exponents of up to 120 carry float32's rounding of their argument. float16 has no small numbers: steps of 6e-8.
  expect_close(logits.now(), wanted, std::max(rounding(dtype), 3e-5), dtype == Dtype::f16 ? 6e-8 : 1e-9, "logits");
}

TEST_F(CrossEntropyOnGpu, loss_and_gradient_equal_float64) {
  for (const Case& c : kCases) {
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.columns << " dtype " << static_cast<int>(dtype));
      compare(c, dtype, true);
    }
  }
}

// As rows of a vocabulary of 1003 that lie 1024 apart.
TEST_F(CrossEntropyOnGpu, rows_may_lie_apart) {
  constexpr int64_t kRows = 3, kColumns = 1003, kStride = 1024;
  for (const Dtype dtype : kDtypes) {
    std::vector<double> values = random_values(kRows * kColumns, 1, 4), wide(kRows * kStride, 5.0);
    for (int64_t i = 0; i < kRows * kColumns; ++i) wide[i / kColumns * kStride + i % kColumns] = values[i];
    Numbers dense(dtype, values), apart(dtype, wide);
    Array<int64_t> labels(std::vector<int64_t>{7, -100, 1002});
    Array<double> loss(std::vector<double>(kRows, 7777.0)), loss_apart(std::vector<double>(kRows, 7777.0));
    CrossEntropy op{dense.data(), labels.as<int64_t>(), loss.as<double>(), kRows, kColumns, true, 0.5, dtype};
    ASSERT_EQ(cross_entropy_cuda(op, nullptr), 0);
    op.logits = apart.data(), op.loss = loss_apart.as<double>(), op.stride = kStride;
    run_repeatedly({&apart, &loss_apart}, [&](void* stream) { return cross_entropy_cuda(op, stream); });
    expect_close(loss_apart.now(), loss.now(), 1e-6, 1e-6, "loss");
    const std::vector<double> found = apart.now(), wanted = dense.now();
    for (int64_t i = 0; i < kRows * kStride; ++i) {
      const int64_t row = i / kStride, column = i % kStride;
      if (column >= kColumns)
        EXPECT_EQ(found[i], 5.0) << "between rows, element " << i;
      else
        EXPECT_NEAR(found[i], wanted[row * kColumns + column], 2 * rounding(dtype) * std::abs(found[i]) + 1e-7);
    }
  }
}

TEST_F(CrossEntropyOnGpu, without_gradient_the_logits_stay_as_they_are) { compare(kCases[1], Dtype::bf16, false); }

TEST_F(CrossEntropyOnGpu, a_label_beyond_the_vocabulary_gives_a_loss_that_is_no_number) {
  Numbers logits(Dtype::f32, random_values(8, 1));
  Array<int64_t> labels(std::vector<int64_t>{8});
  Array<double> loss(std::vector<double>{1.0});
  const CrossEntropy op{logits.data(), labels.as<int64_t>(), loss.as<double>(), 1, 8, true, 1, Dtype::f32};
  ASSERT_EQ(cross_entropy_cuda(op, nullptr), 0);
  check(cudaStreamSynchronize(nullptr));
  EXPECT_TRUE(std::isnan(loss.now()[0]));
}

}  // namespace
}  // namespace drivetrain::kernels
