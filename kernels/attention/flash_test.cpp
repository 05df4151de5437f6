// Attention of bfloat16 against float64, and bit by bit whatever way tasks are divided.
#include "kernels/attention/flash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "kernels/common/narrow.h"
#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
namespace {

using namespace test;

constexpr double kHalfUlp = 0x1p-8;  // of bfloat16, relative: 8 bits of which the first is not stored
constexpr double kFloat = 2e-5;      // sums in float32 and the exponential, of what is summed

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;
Memory memory(int64_t bytes) { return Memory(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))); }

double value_of(uint16_t bits) { return widened(Bf16{bits}); }

struct Case {
  int64_t batch, queries, keys, heads, groups, size;
  bool causal;
  int64_t window = 0, offset = 0;
  float softcap = 0;
};
// One element, rests of panels and blocks, groups, keys that no query sees, queries that see all keys, long rows;
// windows within a block and over several, on both sides, of later queries, queries that see nothing; softcaps.
constexpr Case kCases[] = {{1, 1, 1, 1, 1, 8, true},
                           {2, 70, 70, 4, 2, 64, true},
                           {1, 330, 330, 2, 1, 80, true},
                           {1, 64, 200, 2, 2, 16, false},
                           {1, 130, 40, 2, 1, 33, true},
                           {1, 40, 130, 2, 2, 32, true},
                           {1, 64, 64, 1, 1, 128, true},
                           {2, 100, 600, 3, 1, 72, false},
                           {1, 330, 330, 2, 1, 32, true, 70},
                           {1, 200, 200, 1, 1, 16, true, 1},
                           {1, 700, 700, 1, 1, 16, true, 300},
                           {1, 150, 170, 2, 2, 32, false, 20, 10},
                           {1, 70, 400, 1, 1, 32, true, 90, 200},
                           {1, 200, 130, 1, 1, 32, true, 50, 40},
                           {1, 100, 40, 1, 1, 16, true, 0, -30},
                           {1, 130, 130, 2, 1, 32, true, 0, 0, 2},
                           {1, 100, 100, 1, 1, 16, true, 40, 0, 30}};

// [B, positions, heads, D] in rows that hold `others` further elements, in bfloat16.
struct Array {
  int64_t positions, heads, size, stride;
  std::vector<uint16_t> bits;

  Array(int64_t batch, int64_t n, int64_t h, int64_t d, uint64_t seed, int64_t others = 0)
      : positions(n), heads(h), size(d), stride(h * d + others) {
    for (const float x : normal_numbers(batch * n * stride, seed)) bits.push_back(to_bf16(x));
  }
  size_t at(int64_t b, int64_t i, int64_t h, int64_t d) const {
    return static_cast<size_t>((b * positions + i) * stride + h * size + d);
  }
  double operator()(int64_t b, int64_t i, int64_t h, int64_t d) const { return value_of(bits[at(b, i, h, d)]); }
  FlashHeads heads_of() const { return {bits.data(), positions * stride, stride, size}; }
};

// A value in float64, and the sizes of what an implementation rounds on the way to it: to bfloat16, in float32.
struct Sum {
  double value = 0, rounded = 0, summed = 0;
  // `size`: of what the factor is a sum of.
  void add(double factor, double size, double x) {
    value += factor * x, rounded += std::abs(factor * x), summed += std::abs(size * x);
  }
  void add(double factor, double x) { add(factor, factor, x); }
};

class Problem {
 public:
  const Case c;
  const float scale;
  const Array q, k, v, dout;
  Array out;
  std::vector<float> lse;

  explicit Problem(const Case& the_case)
      : c(the_case),
        scale(static_cast<float>(1.5 / std::sqrt(c.size))),
        q(c.batch, c.queries, c.heads, c.size, 1, 5),
        k(c.batch, c.keys, c.groups, c.size, 2, 3),
        v(c.batch, c.keys, c.groups, c.size, 3),
        dout(c.batch, c.queries, c.heads, c.size, 4, 1),
        out(c.batch, c.queries, c.heads, c.size, 5),
        lse(static_cast<size_t>(c.batch * c.heads * c.queries)) {}

  // Runs f for every query head.
  template <class F>
  void for_heads(const F& f) const {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h) f(b, h, h / (c.heads / c.groups));
  }
  bool sees(int64_t i, int64_t j) const {
    const int64_t distance = i + c.offset - j;
    return (!c.causal || distance >= 0) && (c.window == 0 || std::abs(distance) < c.window);
  }
  float& lse_of(int64_t b, int64_t h, int64_t i) { return lse[static_cast<size_t>((b * c.heads + h) * c.queries + i)]; }
  double score(int64_t b, int64_t h, int64_t g, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < c.size; ++d) sum += q(b, i, h, d) * k(b, j, g, d);
    return c.softcap > 0 ? c.softcap * std::tanh(sum * scale / c.softcap) : sum * scale;
  }
  double slope(double score) const { return c.softcap > 0 ? 1 - score * score / c.softcap / c.softcap : 1; }

  template <class Op>
  void shape(Op& op, ProductUnit unit) const {
    op.batch = c.batch, op.queries = c.queries, op.keys = c.keys, op.heads = c.heads, op.groups = c.groups;
    op.head_size = c.size, op.scale = scale, op.causal = c.causal, op.unit = unit;
    op.window = c.window, op.offset = c.offset, op.softcap = c.softcap;
    op.q = q.heads_of(), op.k = k.heads_of(), op.v = v.heads_of();
  }
};

std::vector<int64_t> cuts(int64_t n, bool odd) { return odd ? odd_cuts(n) : std::vector<int64_t>{0, n}; }

void forward(Problem& p, ProductUnit unit, bool in_odd_pieces) {
  FlashForward op;
  p.shape(op, unit);
  const Memory packed = memory(flash_packed_bytes(op)), scratch = memory(flash_scratch_bytes(op));
  op.packed = packed.get(), op.out = p.out.bits.data(), op.lse = p.lse.data();
  in_pieces(cuts(flash_packs(op), in_odd_pieces), [&](int64_t begin, int64_t end) { flash_pack(op, begin, end); });
  in_pieces(cuts(flash_tasks(op), in_odd_pieces),
            [&](int64_t begin, int64_t end) { flash_forward_cpu(op, scratch.get(), begin, end); });
}

struct Grads {
  std::vector<uint16_t> dq, dk, dv;
  bool operator==(const Grads&) const = default;
};
Grads backward(const Problem& p, ProductUnit unit, bool in_odd_pieces) {
  FlashBackward op;
  p.shape(op, unit);
  const size_t of_q = static_cast<size_t>(p.c.batch * p.c.queries * p.c.heads * p.c.size),
               of_k = static_cast<size_t>(p.c.batch * p.c.keys * p.c.groups * p.c.size),
               of_heads = of_k * static_cast<size_t>(p.c.heads / p.c.groups);
  Grads g{std::vector<uint16_t>(of_q), std::vector<uint16_t>(of_k), std::vector<uint16_t>(of_k)};
  std::vector<float> dk(of_heads), dv(of_heads);
  const Memory scratch = memory(flash_scratch_bytes(op));
  op.out = p.out.heads_of(), op.dout = p.dout.heads_of(), op.lse = p.lse.data();
  op.dq = g.dq.data(), op.dk = g.dk.data(), op.dv = g.dv.data();
  const bool grouped = p.c.groups < p.c.heads;
  if (grouped) op.head_dk = dk.data(), op.head_dv = dv.data();
  in_pieces(cuts(flash_tasks(op), in_odd_pieces),
            [&](int64_t begin, int64_t end) { flash_backward_cpu(op, scratch.get(), begin, end); });
  if (grouped)
    in_pieces(cuts(p.c.batch * p.c.keys * p.c.groups, in_odd_pieces),
              [&](int64_t begin, int64_t end) { flash_sum_heads_cpu(op, begin, end); });
  return g;
}

// Every result is rounded once; what it is a sum of, once before.
void expect_rounded(uint16_t found, const Sum& sum, const char* what) {
  ASSERT_NEAR(value_of(found), sum.value, kHalfUlp * (std::abs(sum.value) + sum.rounded) * 1.01 + kFloat * sum.summed)
      << what;
}

class FlashCpu : public ::testing::TestWithParam<ProductUnit> {};
// Those that this processor has; on one without any these products are LibTorch's.
std::vector<ProductUnit> units_here() {
  std::vector<ProductUnit> units;
  for (const ProductUnit unit : {ProductUnit::avx512_bf16, ProductUnit::amx})
    if (unit <= product_unit()) units.push_back(unit);
  return units;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FlashCpu);
INSTANTIATE_TEST_SUITE_P(Units, FlashCpu, ::testing::ValuesIn(units_here()));

TEST_P(FlashCpu, out_is_the_softmax_over_the_keys_that_a_query_sees) {
  for (const Case& c : kCases) {
    Problem p(c);
    forward(p, GetParam(), false);
    p.for_heads([&](int64_t b, int64_t h, int64_t g) {
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<std::pair<int64_t, double>> scores;  // of keys
        for (int64_t j = 0; j < c.keys; ++j)
          if (p.sees(i, j)) scores.emplace_back(j, p.score(b, h, g, i, j));
        double sum = 0;
        for (const auto& [j, score] : scores) sum += std::exp(score);
        if (scores.empty())
          ASSERT_EQ(p.lse_of(b, h, i), -std::numeric_limits<float>::infinity());
        else
          ASSERT_NEAR(p.lse_of(b, h, i), std::log(sum), 1e-5);
        for (int64_t d = 0; d < c.size; ++d) {
          Sum out;
          for (const auto& [j, score] : scores) out.add(std::exp(score) / sum, p.v(b, j, g, d));
          expect_rounded(p.out.bits[p.out.at(b, i, h, d)], out, "out");
        }
      }
    });
  }
}

// Gradients from the out and lse that are given, by the formulas.
TEST_P(FlashCpu, gradients_are_those_of_the_formulas) {
  for (const Case& c : kCases) {
    Problem p(c);
    forward(p, GetParam(), false);
    const Grads found = backward(p, GetParam(), false);
    const auto in_k = [&](int64_t b, int64_t j, int64_t g, int64_t d) {
      return ((b * c.keys + j) * c.groups + g) * c.size + d;
    };
    std::vector<Sum> dk(found.dk.size()), dv(found.dv.size());
    p.for_heads([&](int64_t b, int64_t h, int64_t g) {
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<Sum> dq(static_cast<size_t>(c.size));
        for (int64_t j = 0; j < c.keys; ++j) {
          if (!p.sees(i, j)) continue;
          const double score = p.score(b, h, g, i, j), probability = std::exp(score - p.lse_of(b, h, i));
          Sum sum;
          for (int64_t d = 0; d < c.size; ++d) {
            sum.add(p.dout(b, i, h, d), p.v(b, j, g, d));
            sum.add(p.dout(b, i, h, d), -p.out(b, i, h, d));
          }
          const double factor = probability * p.slope(score) * p.scale;
          const double dscore = sum.value * factor, size = sum.rounded * factor;
          for (int64_t d = 0; d < c.size; ++d) {
            dq[static_cast<size_t>(d)].add(dscore, size, p.k(b, j, g, d));
            dk[static_cast<size_t>(in_k(b, j, g, d))].add(dscore, size, p.q(b, i, h, d));
            dv[static_cast<size_t>(in_k(b, j, g, d))].add(probability, p.dout(b, i, h, d));
          }
        }
        for (int64_t d = 0; d < c.size; ++d)
          expect_rounded(found.dq[static_cast<size_t>(((b * c.queries + i) * c.heads + h) * c.size + d)],
                         dq[static_cast<size_t>(d)], "dq");
      }
    });
    for (size_t at = 0; at < dk.size(); ++at) {
      expect_rounded(found.dk[at], dk[at], "dk");
      expect_rounded(found.dv[at], dv[at], "dv");
    }
  }
}

TEST_P(FlashCpu, who_computes_a_task_does_not_change_a_bit) {
  for (const Case& c : kCases) {
    Problem whole(c), pieces(c);
    forward(whole, GetParam(), false);
    forward(pieces, GetParam(), true);
    EXPECT_EQ(whole.out.bits, pieces.out.bits);
    EXPECT_EQ(whole.lse, pieces.lse);
    EXPECT_EQ(backward(whole, GetParam(), false), backward(whole, GetParam(), true));
  }
}

}  // namespace
}  // namespace drivetrain::kernels
