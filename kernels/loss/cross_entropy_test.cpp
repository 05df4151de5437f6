// Cross entropy on the CPU against float64, and what must hold bit by bit.
//
// The same source once more without vector code, to compare bits with.
#define DRIVETRAIN_VECTOR_CLONES
#define cross_entropy_cpu cross_entropy_cpu_plain
#include "kernels/loss/cross_entropy_cpu.cpp"
#undef cross_entropy_cpu

#include <gtest/gtest.h>

#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
DRIVETRAIN_KERNEL void cross_entropy_cpu(const CrossEntropy&, int64_t row_begin, int64_t row_end);
namespace {

using namespace test;

constexpr int64_t kVocabularies[] = {1, 2, 31, 32, 33, 127, 128, 129, 1000, 2047, 2048, 2049, 5003, 50304};

struct Problem {
  Problem(int64_t rows, int64_t columns, float spread = 3)
      : logits(normal_numbers(rows * columns, columns, spread)), labels(rows), loss(rows, -1.0) {
    for (int64_t n = 0; n < rows; ++n) labels[n] = (n * 7919 + columns / 2) % columns;
    op.rows = rows, op.columns = columns;
    point();
  }
  Problem(const Problem& other) : logits(other.logits), labels(other.labels), loss(other.loss), op(other.op) {
    point();
  }
  void point() { op.logits = logits.data(), op.labels = labels.data(), op.loss = loss.data(); }
  void run() { cross_entropy_cpu(op, 0, op.rows); }
  float* row(int64_t n) { return logits.data() + n * op.columns; }

  std::vector<float> logits;
  std::vector<int64_t> labels;
  std::vector<double> loss;
  CrossEntropy op;
};

struct Expected {
  double loss = 0;
  std::vector<double> gradient, room;
};

Expected expected(const Problem& p, int64_t n) {
  const int64_t v = p.op.columns, label = p.labels[n];
  const double cap = p.op.softcap, factor = p.op.logit_scale;
  std::vector<double> x(p.logits.data() + n * v, p.logits.data() + (n + 1) * v), slope(v, factor);
  for (int64_t i = 0; i < v; ++i) {
    x[i] *= factor;
    if (cap > 0) x[i] = cap * std::tanh(x[i] / cap), slope[i] = factor * (1 - x[i] * x[i] / cap / cap);
  }
  const double top = *std::max_element(x.begin(), x.end());
  Expected e;
  e.gradient.assign(v, 0), e.room.assign(v, 0);
  if (label < 0) return e;
  double sum = 0;
  for (int64_t i = 0; i < v; ++i) sum += std::exp(x[i] - top);
  e.loss = std::log(sum) + top - x[label];
  for (int64_t i = 0; i < v; ++i) {
    const double share = std::exp(x[i] - top) / sum;
    e.gradient[i] = p.op.scale * (share - (i == label ? 1 : 0)) * slope[i];
    // The exponent is rounded twice, and the sum's terms carry the same errors; then a few roundings. A capped logit,
    // and its slope, are off by a few ulps of the cap.
    e.room[i] = p.op.scale * slope[i] * share * kUlp * (2 * (top - x[i]) + 8 + 8 * cap) +
                std::abs(e.gradient[i]) * kUlp + 1e-37;
    if (cap > 0) e.room[i] += p.op.scale * factor * 8 * kUlp * std::abs(share - (i == label ? 1 : 0));
  }
  return e;
}

void check(const Problem& given) {
  Problem p(given);
  p.run();
  for (int64_t n = 0; n < p.op.rows; ++n) {
    const Expected e = expected(given, n);
    ASSERT_NEAR(p.loss[n], e.loss, 1e-6 * (1 + std::abs(e.loss))) << given.op.columns;
    for (int64_t i = 0; i < p.op.columns; ++i)
      ASSERT_NEAR(p.row(n)[i], e.gradient[i], e.room[i]) << "row " << n << ", column " << i << " of " << p.op.columns;
  }
}

TEST(CrossEntropyCpu, agrees_with_float64) {
  for (const int64_t v : kVocabularies) {
    Problem p(v > 10000 ? 2 : 5, v);
    p.op.scale = 0.125;
    check(p);
  }
}

TEST(CrossEntropyCpu, scaled_and_capped_logits_agree_with_float64) {
  for (const int64_t v : {1, 33, 2049, 5003})
    for (const auto& [scale, cap] : {std::pair{0.25F, 0.0F}, {1.0F, 5.0F}, {0.5F, 30.0F}, {8.0F, 3.0F}}) {
      Problem p(5, v);
      p.op.scale = 0.125, p.op.logit_scale = scale, p.op.softcap = cap;
      p.labels[1] = -100;
      check(p);
      Problem without(p);
      without.op.gradient = false;
      p.run(), without.run();
      EXPECT_EQ(p.loss, without.loss);
    }
}

TEST(CrossEntropyCpu, rows_whose_label_does_not_count_are_zero) {
  Problem p(4, 131);
  p.labels[0] = -100, p.labels[2] = -1;
  check(p);
  p.run();
  for (const int64_t n : {0, 2}) {
    EXPECT_EQ(p.loss[n], 0);
    for (int64_t i = 0; i < 131; ++i) EXPECT_EQ(p.row(n)[i], 0);
  }
}

TEST(CrossEntropyCpu, huge_logits_neither_overflow_nor_vanish) {
  Problem p(3, 300, 1e4F), giants(1, 40);
  check(p);
  for (int64_t i = 0; i < 40; ++i) giants.logits[i] = i % 2 ? 3e38F : -3e38F;
  giants.labels[0] = 1;
  giants.run();
  EXPECT_NEAR(giants.loss[0], std::log(20), 1e-6);
  EXPECT_EQ(giants.logits[0], 0);
  EXPECT_NEAR(giants.logits[1], -0.95, 1e-6);
  EXPECT_NEAR(giants.logits[3], 0.05, 1e-7);
}

TEST(CrossEntropyCpu, a_vocabulary_of_one_is_certain) {
  Problem p(3, 1);
  p.run();
  EXPECT_EQ(p.loss, std::vector<double>(3, 0.0));
  EXPECT_EQ(p.logits, std::vector<float>(3, 0.0F));
}

TEST(CrossEntropyCpu, forbidden_columns_have_no_gradient_at_all) {
  Problem p(1, 200);
  for (int64_t i = 50; i < 60; ++i) p.logits[i] = -std::numeric_limits<float>::infinity();
  p.labels[0] = 3;
  p.run();
  EXPECT_TRUE(std::isfinite(p.loss[0]));
  for (int64_t i = 50; i < 60; ++i) EXPECT_EQ(p.logits[i], 0);
}

TEST(CrossEntropyCpu, gradients_of_a_row_sum_to_zero) {
  Problem p(2, 5003);
  p.run();
  for (int64_t n = 0; n < 2; ++n) {
    double sum = 0;
    for (int64_t i = 0; i < 5003; ++i) sum += p.row(n)[i];
    EXPECT_NEAR(sum, 0, 4 * kUlp);
  }
}

TEST(CrossEntropyCpu, without_gradient_the_logits_stay_and_the_loss_has_the_same_bits) {
  for (const int64_t v : kVocabularies) {
    Problem with(2, v), without(2, v);
    const std::vector<float> before = without.logits;
    without.op.gradient = false;
    with.run(), without.run();
    EXPECT_EQ(with.loss, without.loss) << v;
    EXPECT_EQ(without.logits, before) << v;
  }
}

TEST(CrossEntropyCpu, cuts_and_vector_widths_do_not_change_a_bit) {
  for (const int64_t v : kVocabularies) {
    Problem whole(4, v), single(4, v), plain(4, v);
    whole.run();
    for (int64_t n = 3; n >= 0; --n) cross_entropy_cpu(single.op, n, n + 1);
    cross_entropy_cpu_plain(plain.op, 0, 4);
    EXPECT_EQ(whole.logits, single.logits) << v;
    EXPECT_EQ(whole.loss, single.loss) << v;
    EXPECT_EQ(whole.logits, plain.logits) << v;
    EXPECT_EQ(whole.loss, plain.loss) << v;
  }
}

TEST(CrossEntropyCpu, nan_and_impossible_labels_show_in_their_row_only) {
  for (const int64_t place : {0, 1, 2500, 4999}) {
    Problem p(3, 5000);
    p.row(1)[place] = NAN;
    p.labels[2] = 5000;
    p.run();
    EXPECT_TRUE(std::isfinite(p.loss[0]));
    EXPECT_TRUE(std::isnan(p.loss[1])) << place;
    EXPECT_TRUE(std::isnan(p.loss[2]));
    EXPECT_EQ(std::count(p.row(2), p.row(2) + 5000, 0.0F), 5000);
  }
}

}  // namespace
}  // namespace drivetrain::kernels
