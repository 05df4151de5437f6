// Rotary embedding on the CPU against complex multiplication in float64; backward is forward's transpose.
#include "kernels/rotary/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <vector>

namespace drivetrain::kernels {
namespace {

using Floats = std::vector<float>;

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

Floats random_values(int64_t n, int seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Floats x(n);
  for (float& value : x) value = normal(engine);
  return x;
}

struct Shape {
  int64_t batch, sequence, heads, groups, head_dim;
  bool bias = false, turn = true;
  int64_t some_pairs = 0;  // not 0: so many turn

  int64_t pairs() const { return some_pairs > 0 ? some_pairs : head_dim / 2; }
  int64_t tokens() const { return batch * sequence; }
  int64_t width() const { return (heads + 2 * groups) * head_dim; }
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (bool bias : {false, true}) {
    for (bool turn : {false, true}) {
      all.push_back({1, 1, 1, 1, 2, bias, turn});
      all.push_back({2, 7, 4, 2, 6, bias, turn});
      all.push_back({3, 5, 8, 1, 64, bias, turn});
      all.push_back({1, 9, 3, 3, 80, bias, turn});
      all.push_back({2, 7, 4, 2, 10, bias, turn, 3});
      all.push_back({1, 5, 2, 1, 96, bias, turn, 32});
    }
  }
  all.push_back({2, 3, 2, 1, 5, true, false});  // an odd size is split, not turned
  return all;
}

struct Problem {
  explicit Problem(const Shape& s)
      : shape(s),
        qkv(random_values(s.tokens() * s.width(), 1)),
        bias(random_values(s.width(), 2)),
        q(s.tokens() * s.heads * s.head_dim),
        k(s.tokens() * s.groups * s.head_dim),
        v(k.size()) {
    for (int64_t position = 0; position < s.sequence; ++position) {
      for (int64_t i = 0; i < s.pairs(); ++i) {
        const double angle = static_cast<double>(position) * std::pow(10000.0, -1.0 * i / s.pairs());
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

  Rotary op() {
    return {.qkv = qkv.data(),
            .q = q.data(),
            .k = k.data(),
            .v = v.data(),
            .bias = shape.bias ? bias.data() : nullptr,
            .cos = shape.turn ? cos.data() : nullptr,
            .sin = shape.turn ? sin.data() : nullptr,
            .tokens = shape.tokens(),
            .sequence = shape.sequence,
            .heads = shape.heads,
            .groups = shape.groups,
            .head_dim = shape.head_dim,
            .pairs = shape.some_pairs};
  }

  // Where head `head` of all heads + 2 groups of a token lies after the split.
  float* split_head(int64_t token, int64_t head) {
    const int64_t C = shape.head_dim;
    if (head < shape.heads) return &q[(token * shape.heads + head) * C];
    head -= shape.heads;
    return head < shape.groups ? &k[(token * shape.groups + head) * C]
                               : &v[(token * shape.groups + head - shape.groups) * C];
  }

  Shape shape;
  Floats qkv, bias, q, k, v, cos, sin;
};

// Three roundings of numbers no longer than the pair.
void expect_turned(Problem& p, int64_t token, int64_t head) {
  const int64_t C = p.shape.head_dim, half = p.shape.pairs(), angle = token % p.shape.sequence * half;
  const float *from = &p.qkv[token * p.shape.width() + head * C], *bias = &p.bias[head * C],
              *to = p.split_head(token, head);
  auto input = [&](int64_t i) -> double { return p.shape.bias ? from[i] + bias[i] : from[i]; };
  if (!p.shape.turn || head >= p.shape.heads + p.shape.groups) {
    for (int64_t i = 0; i < C; ++i) ASSERT_EQ(to[i], static_cast<float>(input(i))) << "head " << head << ", " << i;
    return;
  }
  for (int64_t i = 0; i < half; ++i) {
    const std::complex<double> pair(input(i), input(half + i)), turn(p.cos[angle + i], p.sin[angle + i]);
    const std::complex<double> expected = pair * turn;
    ASSERT_NEAR(to[i], expected.real(), 1.5 * kEpsilon * std::abs(pair)) << "token " << token << ", head " << head;
    ASSERT_NEAR(to[half + i], expected.imag(), 1.5 * kEpsilon * std::abs(pair))
        << "token " << token << ", head " << head;
  }
  for (int64_t i = 2 * half; i < C; ++i) ASSERT_EQ(to[i], static_cast<float>(input(i))) << "passes, " << i;
}

TEST(Rotary, forward_splits_and_turns_each_pair_by_its_positions_angle) {
  for (const Shape& shape : shapes()) {
    Problem p(shape);
    rotary_forward_cpu(p.op(), 0, shape.tokens());
    for (int64_t token = 0; token < shape.tokens(); ++token) {
      for (int64_t head = 0; head < shape.heads + 2 * shape.groups; ++head) expect_turned(p, token, head);
    }
  }
}

TEST(Rotary, backward_puts_back_what_forward_took) {
  for (const Shape& shape : shapes()) {
    if (shape.bias) continue;  // a gradient knows none
    Problem p(shape);
    const Floats before = p.qkv;
    rotary_forward_cpu(p.op(), 0, shape.tokens());
    std::fill(p.qkv.begin(), p.qkv.end(), NAN);
    rotary_backward_cpu(p.op(), 0, shape.tokens());
    // Six roundings, and tables whose squares add up to 1 but for their own.
    for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(p.qkv[i], before[i], 4 * kEpsilon * 5) << i;
  }
}

TEST(Rotary, backward_is_the_transpose_of_forward) {
  for (const Shape& shape : shapes()) {
    if (shape.bias) continue;
    Problem forward(shape), backward(shape);
    rotary_forward_cpu(forward.op(), 0, shape.tokens());
    backward.q = random_values(static_cast<int64_t>(backward.q.size()), 3);
    backward.k = random_values(static_cast<int64_t>(backward.k.size()), 4);
    backward.v = random_values(static_cast<int64_t>(backward.v.size()), 5);
    rotary_backward_cpu(backward.op(), 0, shape.tokens());
    double out = 0, in = 0, size = 0;
    auto dot = [&](const Floats& a, const Floats& b, double& sum) {
      for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
      for (size_t i = 0; i < a.size(); ++i) size += std::abs(a[i] * b[i]);
    };
    dot(forward.q, backward.q, out);
    dot(forward.k, backward.k, out);
    dot(forward.v, backward.v, out);
    dot(forward.qkv, backward.qkv, in);
    EXPECT_NEAR(out, in, 2 * kEpsilon * size);
  }
}

TEST(Rotary, tokens_may_be_shared_out_in_any_way) {
  Problem whole({2, 25, 4, 2, 36, true, true}), parts(whole);
  rotary_forward_cpu(whole.op(), 0, 50);
  for (auto [begin, end] : {std::pair{49, 50}, {0, 1}, {1, 30}, {30, 49}}) rotary_forward_cpu(parts.op(), begin, end);
  EXPECT_EQ(whole.q, parts.q);
  EXPECT_EQ(whole.k, parts.k);
  EXPECT_EQ(whole.v, parts.v);
  rotary_backward_cpu(whole.op(), 0, 50);
  for (auto [begin, end] : {std::pair{20, 50}, {0, 20}}) rotary_backward_cpu(parts.op(), begin, end);
  EXPECT_EQ(whole.qkv, parts.qkv);
}

}  // namespace
}  // namespace drivetrain::kernels
