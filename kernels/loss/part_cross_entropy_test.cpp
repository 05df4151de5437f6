// Cross entropy over parts of a vocabulary on the CPU: the parts together against float64 over the whole row.
//
// The same source once more without vector code, to compare bits with.
#define DRIVETRAIN_VECTOR_CLONES
#define part_cross_entropy_begin_cpu part_cross_entropy_begin_cpu_plain
#define part_cross_entropy_end_cpu part_cross_entropy_end_cpu_plain
#include "kernels/loss/part_cross_entropy_cpu.cpp"
#undef part_cross_entropy_begin_cpu
#undef part_cross_entropy_end_cpu

#include <gtest/gtest.h>

#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
DRIVETRAIN_KERNEL void part_cross_entropy_begin_cpu(const PartCrossEntropy&, int64_t row_begin, int64_t row_end);
DRIVETRAIN_KERNEL void part_cross_entropy_end_cpu(const PartCrossEntropy&, int64_t row_begin, int64_t row_end);
namespace {

using namespace test;
using Pass = void (*)(const PartCrossEntropy&, int64_t, int64_t);

// Rows over a whole vocabulary, and what the ranks have of them: equal parts, the last ones with padding.
struct Problem {
  Problem(int64_t rows, int64_t vocabulary, int64_t ranks, int64_t multiple = 1, float spread = 3)
      : rows(rows),
        vocabulary(vocabulary),
        ranks(ranks),
        logits(normal_numbers(rows * vocabulary, vocabulary, spread)),
        labels(rows) {
    columns = (vocabulary + multiple * ranks - 1) / (multiple * ranks) * multiple;
    for (int64_t n = 0; n < rows; ++n) labels[n] = (n * 7919 + vocabulary / 2) % vocabulary;
  }

  int64_t valid(int64_t rank) const { return std::clamp<int64_t>(vocabulary - rank * columns, 0, columns); }

  // As ranks would, one after the other.
  void run(Pass begin = part_cross_entropy_begin_cpu, Pass end = part_cross_entropy_end_cpu) {
    parts.assign(ranks * rows * 3, -7), loss.assign(ranks * rows, -1), gradient.clear();
    for (const Pass pass : {begin, end})
      for (int64_t r = 0; r < ranks; ++r) {
        if (pass == begin) gradient.push_back(part_of(r));
        PartCrossEntropy op;
        op.logits = gradient[r].data(), op.labels = labels.data();
        op.rows = rows, op.columns = columns, op.valid = valid(r), op.first = r * columns, op.vocabulary = vocabulary;
        op.part = parts.data() + r * rows * 3, op.parts = parts.data(), op.ranks = ranks;
        op.loss = loss.data() + r * rows, op.gradient = wants_gradient, op.scale = scale;
        op.logit_scale = factor, op.softcap = cap;
        pass(op, 0, rows);
      }
  }
  // Padding holds what must not count.
  std::vector<float> part_of(int64_t rank) const {
    std::vector<float> part(rows * columns, 1e30F);
    for (int64_t n = 0; n < rows; ++n)
      std::copy_n(logits.data() + n * vocabulary + rank * columns, valid(rank), part.data() + n * columns);
    return part;
  }

  int64_t rows, vocabulary, ranks, columns = 0;
  std::vector<float> logits;
  std::vector<int64_t> labels;
  double scale = 0.125;
  bool wants_gradient = true;
  float factor = 1, cap = 0;  // of the logits
  std::vector<double> parts, loss;
  std::vector<std::vector<float>> gradient;  // by rank
};

void check_row(const Problem& p, int64_t n) {
  const float* const row = p.logits.data() + n * p.vocabulary;
  std::vector<double> x(row, row + p.vocabulary), slope(x.size(), p.factor);
  const int64_t label = p.labels[n];
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] *= p.factor;
    if (p.cap > 0) x[i] = p.cap * std::tanh(x[i] / p.cap), slope[i] *= 1 - x[i] * x[i] / p.cap / p.cap;
  }
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (int64_t i = 0; i < p.vocabulary; ++i) sum += std::exp(x[i] - top);
  const double loss = label < 0 ? 0 : std::log(sum) + top - x[label];
  for (int64_t r = 0; r < p.ranks; ++r) {
    ASSERT_NEAR(p.loss[r * p.rows + n], loss, 1e-6 * (1 + std::abs(loss))) << "rank " << r;
    for (int64_t i = 0; i < p.columns; ++i) {
      const float found = p.gradient[r][n * p.columns + i];
      const int64_t column = r * p.columns + i;
      if (label < 0 || column >= p.vocabulary) {
        ASSERT_EQ(found, 0) << "padding, or a row that does not count: rank " << r << ", column " << i;
        continue;
      }
      const double share = std::exp(x[column] - top) / sum, rest = share - (column == label ? 1 : 0);
      const double wanted = p.scale * rest * slope[column];
      double room = p.scale * slope[column] * share * kUlp * (2 * (top - x[column]) + 8 + 8 * p.cap) +
                    std::abs(wanted) * kUlp + 1e-37;
      if (p.cap > 0) room += p.scale * p.factor * 8 * kUlp * std::abs(rest);
      ASSERT_NEAR(found, wanted, room) << "row " << n << ", column " << column << " of " << p.vocabulary;
    }
  }
}

TEST(PartCrossEntropyCpu, parts_together_agree_with_float64_over_the_whole_row) {
  for (const int64_t ranks : {1, 2, 3, 4, 8})
    for (const int64_t vocabulary : {1, 2, 13, 127, 1000, 4099, 50257})
      for (const int64_t multiple : {1, 128}) {
        SCOPED_TRACE(testing::Message() << vocabulary << " over " << ranks << ", multiples of " << multiple);
        Problem p(vocabulary > 10000 ? 2 : 5, vocabulary, ranks, multiple);
        p.labels[1] = -100;
        p.run();
        for (int64_t n = 0; n < p.rows; ++n) check_row(p, n);
      }
}

TEST(PartCrossEntropyCpu, parts_of_scaled_and_capped_logits_agree_with_float64) {
  for (const auto& [factor, cap] : {std::pair{0.25F, 0.0F}, {0.5F, 5.0F}}) {
    Problem p(5, 1000, 3, 128, 6);
    p.labels[1] = -100, p.factor = factor, p.cap = cap;
    p.run();
    for (int64_t n = 0; n < p.rows; ++n) check_row(p, n);
  }
}

TEST(PartCrossEntropyCpu, the_label_may_be_any_ranks) {
  Problem p(40, 40, 4);
  for (int64_t n = 0; n < 40; ++n) p.labels[n] = n;
  p.run();
  for (int64_t n = 0; n < 40; ++n) check_row(p, n);
}

TEST(PartCrossEntropyCpu, huge_logits_neither_overflow_nor_vanish) {
  Problem p(3, 300, 3, 1, 1e4F);
  p.run();
  for (int64_t n = 0; n < 3; ++n) check_row(p, n);
}

TEST(PartCrossEntropyCpu, all_ranks_have_the_same_loss_to_the_bit) {
  Problem p(4, 1003, 4);
  p.run();
  for (int64_t r = 1; r < 4; ++r)
    for (int64_t n = 0; n < 4; ++n) EXPECT_EQ(p.loss[r * 4 + n], p.loss[n]);
}

TEST(PartCrossEntropyCpu, without_gradient_the_logits_stay_and_the_loss_has_the_same_bits) {
  Problem with(3, 1003, 2), without(3, 1003, 2);
  without.wants_gradient = false;
  with.run(), without.run();
  EXPECT_EQ(with.loss, without.loss);
  for (int64_t r = 0; r < 2; ++r) EXPECT_EQ(without.gradient[r], without.part_of(r));
}

TEST(PartCrossEntropyCpu, vector_widths_do_not_change_a_bit) {
  for (const int64_t vocabulary : {31, 1000, 5003}) {
    Problem vectors(4, vocabulary, 2), plain(4, vocabulary, 2);
    vectors.run(), plain.run(part_cross_entropy_begin_cpu_plain, part_cross_entropy_end_cpu_plain);
    EXPECT_EQ(vectors.loss, plain.loss);
    EXPECT_EQ(vectors.gradient, plain.gradient);
  }
}

TEST(PartCrossEntropyCpu, a_part_without_any_possible_token_takes_no_share) {
  Problem p(2, 40, 2);
  for (int64_t i = 20; i < 40; ++i) p.logits[i] = p.logits[40 + i] = -std::numeric_limits<float>::infinity();
  p.labels[0] = 3, p.labels[1] = 4;
  p.run();
  for (int64_t n = 0; n < 2; ++n) {
    EXPECT_TRUE(std::isfinite(p.loss[n]));
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(p.gradient[1][n * 20 + i], 0);
  }
}

TEST(PartCrossEntropyCpu, nan_and_impossible_labels_show_in_their_row_on_all_ranks) {
  Problem p(3, 5000, 2);
  p.logits[5000 + 4999] = NAN;
  p.labels[2] = 5000;
  p.run();
  for (int64_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(std::isfinite(p.loss[r * 3]));
    EXPECT_TRUE(std::isnan(p.loss[r * 3 + 1]));
    EXPECT_TRUE(std::isnan(p.loss[r * 3 + 2]));
    EXPECT_EQ(std::count(p.gradient[r].end() - 2500, p.gradient[r].end(), 0.0F), 2500);
  }
}

}  // namespace
}  // namespace drivetrain::kernels
