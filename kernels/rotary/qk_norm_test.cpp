// Norms of queries and keys with rotary embedding on the CPU: against the formula in float64, whose gradient is held
// against finite differences.
#include "kernels/rotary/qk_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
namespace {

using namespace test;
using Doubles = std::vector<double>;

constexpr double kNormEpsilon = 1e-3;

struct Shape {
  int64_t tokens, sequence, heads, groups, head_dim, pairs = 0;  // pairs 0: half a head
  bool bias = false, turn = true;
  float offset = 0;

  int64_t width() const { return (heads + 2 * groups) * head_dim; }
  int64_t turned() const { return !turn ? 0 : pairs > 0 ? pairs : head_dim / 2; }
};

std::vector<Shape> shapes() {
  return {{1, 1, 1, 1, 2},
          {14, 7, 4, 2, 6, 0, true},
          {15, 5, 8, 1, 64},
          {9, 9, 3, 3, 80, 0, true, true, 1},
          {6, 3, 2, 1, 10, 3},
          {70, 35, 2, 1, 32, 8, true, true, 1},
          {7, 7, 2, 2, 5, 0, true, false}};
}

struct Problem {
  explicit Problem(const Shape& s)
      : shape(s),
        qkv(normal_numbers(s.tokens * s.width(), 1)),
        bias(normal_numbers(s.width(), 2)),
        q_weight(normal_numbers(s.head_dim, 3)),
        k_weight(normal_numbers(s.head_dim, 4)),
        q(normal_numbers(s.tokens * s.heads * s.head_dim, 5)),
        k(normal_numbers(s.tokens * s.groups * s.head_dim, 6)),
        v(normal_numbers(s.tokens * s.groups * s.head_dim, 7)),
        dqkv(qkv.size(), NAN),
        q_partial(blocks() * s.head_dim, NAN),
        k_partial(q_partial) {
    for (int64_t position = 0; position < s.sequence; ++position)
      for (int64_t i = 0; i < s.turned(); ++i) {
        const double angle = static_cast<double>(position) * std::pow(100.0, -static_cast<double>(i) / 8);
        cos.push_back(static_cast<float>(1.25 * std::cos(angle))),
            sin.push_back(static_cast<float>(1.25 * std::sin(angle)));
      }
  }
  int64_t blocks() const { return blocks_of(shape.tokens, kRotaryRows); }

  QkNormRotary op(bool back) {
    QkNormRotary op;
    op.rotary = {.qkv = back ? dqkv.data() : qkv.data(),
                 .q = q.data(),
                 .k = k.data(),
                 .v = v.data(),
                 .bias = shape.bias ? bias.data() : nullptr,
                 .cos = shape.turn ? cos.data() : nullptr,
                 .sin = shape.turn ? sin.data() : nullptr,
                 .tokens = shape.tokens,
                 .sequence = shape.sequence,
                 .heads = shape.heads,
                 .groups = shape.groups,
                 .head_dim = shape.head_dim,
                 .pairs = shape.pairs};
    op.q_weight = q_weight.data(), op.k_weight = k_weight.data();
    op.epsilon = static_cast<float>(kNormEpsilon), op.offset = shape.offset;
    if (back) op.x = qkv.data(), op.q_partial = q_partial.data(), op.k_partial = k_partial.data();
    return op;
  }

  // Where head `head` of all heads + 2 groups of a token lies after the split.
  float* split_head(int64_t token, int64_t head) {
    const int64_t C = shape.head_dim;
    if (head < shape.heads) return &q[(token * shape.heads + head) * C];
    head -= shape.heads;
    return head < shape.groups ? &k[(token * shape.groups + head) * C]
                               : &v[(token * shape.groups + head - shape.groups) * C];
  }
  Doubles input(int64_t token, int64_t head) const {
    Doubles x(shape.head_dim);
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      const int64_t at = head * shape.head_dim + i;
      x[i] = shape.bias ? qkv[token * shape.width() + at] + bias[at] : qkv[token * shape.width() + at];
    }
    return x;
  }
  // The formula for a head of queries or keys.
  Doubles normed(const Doubles& x, int64_t token, int64_t head) const {
    const std::vector<float>& weight = head < shape.heads ? q_weight : k_weight;
    double square = 0;
    for (const double value : x) square += value * value / static_cast<double>(x.size());
    Doubles y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / std::sqrt(square + kNormEpsilon) * (shape.offset + weight[i]);
    const int64_t pairs = shape.turned(), angle = token % shape.sequence * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      const double a = y[i], b = y[pairs + i], c = cos[angle + i], s = sin[angle + i];
      y[i] = a * c - b * s, y[pairs + i] = b * c + a * s;
    }
    return y;
  }

  Shape shape;
  std::vector<float> qkv, bias, q_weight, k_weight, q, k, v, dqkv, q_partial, k_partial, cos, sin;
};

TEST(QkNorm, forward_is_the_formula_and_values_pass) {
  for (const Shape& shape : shapes()) {
    Problem p(shape);
    ASSERT_TRUE(qk_norm_fits_cpu(p.op(false)));
    qk_norm_forward_cpu(p.op(false), 0, shape.tokens);
    for (int64_t token = 0; token < shape.tokens; ++token)
      for (int64_t head = 0; head < shape.heads + 2 * shape.groups; ++head) {
        const Doubles x = p.input(token, head);
        const bool is_value = head >= shape.heads + shape.groups;
        const Doubles wanted = is_value ? x : p.normed(x, token, head);
        for (int64_t i = 0; i < shape.head_dim; ++i)
          ASSERT_NEAR(p.split_head(token, head)[i], wanted[i], is_value ? 0 : 60 * kUlp)
              << "head " << head << ", " << i;
      }
  }
}

// sum of dy times y over the whole problem, as a function of each input in turn.
TEST(QkNorm, backward_is_the_gradient_by_finite_differences) {
  for (const Shape& shape : shapes()) {
    Problem p(shape);
    qk_norm_backward_cpu(p.op(true), 0, p.blocks());
    Doubles dq(shape.head_dim, 0), dk(shape.head_dim, 0);
    for (int64_t token = 0; token < shape.tokens; ++token)
      for (int64_t head = 0; head < shape.heads + 2 * shape.groups; ++head) {
        Doubles x = p.input(token, head);
        const float* const dy = p.split_head(token, head);
        const float* const found = &p.dqkv[token * shape.width() + head * shape.head_dim];
        const bool is_value = head >= shape.heads + shape.groups;
        const auto loss = [&] {
          const Doubles y = is_value ? x : p.normed(x, token, head);
          double sum = 0;
          for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
          return sum;
        };
        for (int64_t i = 0; i < shape.head_dim; ++i) {
          const double at = x[i], step = 1e-5;
          x[i] = at + step;
          const double above = loss();
          x[i] = at - step;
          const double below = loss();
          x[i] = at;
          ASSERT_NEAR(found[i], (above - below) / (2 * step), 2e-4 * (1 + std::abs(found[i]))) << "head " << head;
        }
        if (is_value) continue;
        std::vector<float>& weight = head < shape.heads ? p.q_weight : p.k_weight;
        for (int64_t i = 0; i < shape.head_dim; ++i) {  // linear in the weight
          const float at = weight[i];
          const double before = loss();
          weight[i] = at + 1;
          (head < shape.heads ? dq : dk)[i] += (loss() - before) / (static_cast<double>(weight[i]) - at);
          weight[i] = at;
        }
      }
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      double q = 0, k = 0;
      for (int64_t block = 0; block < p.blocks(); ++block)
        q += p.q_partial[block * shape.head_dim + i], k += p.k_partial[block * shape.head_dim + i];
      EXPECT_NEAR(q, dq[i], 2e-4 * (1 + std::abs(dq[i]))) << i;
      EXPECT_NEAR(k, dk[i], 2e-4 * (1 + std::abs(dk[i]))) << i;
    }
  }
}

TEST(QkNorm, tokens_and_blocks_may_be_shared_out_in_any_way) {
  Problem whole({130, 65, 4, 2, 36, 0, true}), parts(whole);
  qk_norm_backward_cpu(whole.op(true), 0, 3);
  for (auto [begin, end] : {std::pair{2, 3}, {0, 1}, {1, 2}}) qk_norm_backward_cpu(parts.op(true), begin, end);
  EXPECT_EQ(whole.dqkv, parts.dqkv);
  EXPECT_EQ(whole.q_partial, parts.q_partial);
  EXPECT_EQ(whole.k_partial, parts.k_partial);
  qk_norm_forward_cpu(whole.op(false), 0, 130);
  for (auto [begin, end] : {std::pair{49, 130}, {0, 1}, {1, 49}}) qk_norm_forward_cpu(parts.op(false), begin, end);
  EXPECT_EQ(whole.q, parts.q);
  EXPECT_EQ(whole.k, parts.k);
  EXPECT_EQ(whole.v, parts.v);
}

TEST(QkNorm, refuses_heads_that_do_not_fit_on_its_stack) {
  Problem p({1, 1, 1, 1, 514});
  EXPECT_FALSE(qk_norm_fits_cpu(p.op(false)));
}

}  // namespace
}  // namespace drivetrain::kernels
