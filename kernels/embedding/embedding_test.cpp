// Embedding backward on the CPU against float64, and bit by bit against adding in order of position.
#include "kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
namespace {

using namespace test;

struct Problem {
  Problem(int64_t tokens, int64_t vocabulary, int64_t columns)
      : dy(normal_numbers(tokens * columns, 1)), weight(normal_numbers(vocabulary * columns, 2)), ids(tokens) {
    // A few ids take most of the tokens, as in text; some lie outside.
    for (int64_t n = 0; n < tokens; ++n) ids[n] = n % 3 == 0 ? 0 : (n * n * 31) % (vocabulary + 2) - 1;
    op.tokens = tokens, op.vocabulary = vocabulary, op.columns = columns;
    op.dy = dy.data(), op.ids = ids.data(), op.dweight = weight.data();
  }
  template <class T>
  std::vector<T> sums() const {
    std::vector<T> sum(weight.begin(), weight.end());
    for (int64_t n = 0; n < op.tokens; ++n) {
      if (ids[n] < 0 || ids[n] >= op.vocabulary) continue;
      for (int64_t d = 0; d < op.columns; ++d) sum[ids[n] * op.columns + d] += static_cast<T>(dy[n * op.columns + d]);
    }
    return sum;
  }

  std::vector<float> dy, weight;
  std::vector<int64_t> ids;
  EmbeddingBackward op;
};

constexpr int64_t kShapes[][3] = {{1, 1, 1}, {1, 5, 3}, {17, 1, 8}, {40, 7, 33}, {300, 50, 129}, {64, 1000, 768}};

TEST(EmbeddingCpu, adds_rows_to_the_rows_of_their_ids) {
  for (const auto& [tokens, vocabulary, columns] : kShapes) {
    Problem p(tokens, vocabulary, columns);
    const std::vector<double> wide = p.sums<double>();
    const std::vector<float> in_order = p.sums<float>();
    embedding_backward_cpu(p.op, 0, columns);
    EXPECT_EQ(p.weight, in_order);
    // At most `tokens` additions of numbers below 6, each rounded once.
    const double room = static_cast<double>(tokens * tokens) * 6 * kUlp;
    for (size_t i = 0; i < wide.size(); ++i) ASSERT_NEAR(p.weight[i], wide[i], room);
  }
}

TEST(EmbeddingCpu, sharing_the_columns_out_does_not_change_a_bit) {
  for (const auto& [tokens, vocabulary, columns] : kShapes) {
    Problem whole(tokens, vocabulary, columns), pieces(tokens, vocabulary, columns);
    embedding_backward_cpu(whole.op, 0, columns);
    in_pieces(odd_cuts(columns), [&](int64_t begin, int64_t end) { embedding_backward_cpu(pieces.op, begin, end); });
    EXPECT_EQ(whole.weight, pieces.weight);
  }
}

TEST(EmbeddingCpu, ids_outside_the_vocabulary_are_skipped) {
  Problem p(4, 3, 5);
  p.ids = {-1, 3, -100, int64_t{1} << 40};
  const std::vector<float> before = p.weight;
  embedding_backward_cpu(p.op, 0, 5);
  EXPECT_EQ(p.weight, before);
}

}  // namespace
}  // namespace drivetrain::kernels
