// Rotary on CUDA against float64, both ways: grouped heads, odd sizes, no turn, sequences that wrap.
#include "kernels/rotary/rotary.h"

#include "kernels/common/device_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class RotaryOnGpu : public DeviceTest {};

struct Case {
  int64_t tokens, sequence, heads, groups, head_dim, skip;
  bool turned, bias;
  int64_t some_pairs = 0;  // not 0: so many turn
  int64_t pairs() const { return some_pairs > 0 ? some_pairs : head_dim / 2; }
};
constexpr Case kCases[] = {{21, 7, 4, 2, 64, 0, true, true},    {9, 9, 3, 3, 128, 0, true, false},
                           {5, 3, 2, 1, 6, 0, true, true},      {10, 5, 2, 2, 5, 0, false, true},
                           {3, 3, 12, 12, 64, 0, false, true},  {4, 2, 2, 1, 16, 1, true, true},
                           {0, 4, 2, 1, 16, 0, true, false},    {150, 50, 2, 1, 32, 0, true, true},
                           {9, 3, 2, 1, 96, 0, true, true, 32}, {7, 7, 2, 2, 10, 0, true, true, 3}};

// Index of column `i` of head `head` (over q, k and v) of a token in q, k or v.
struct Split {
  std::vector<double> q, k, v;

  double& at(const Case& c, int64_t token, int64_t head, int64_t i) {
    if (head < c.heads) return q[static_cast<size_t>((token * c.heads + head) * c.head_dim + i)];
    if (head < c.heads + c.groups) return k[static_cast<size_t>((token * c.groups + head - c.heads) * c.head_dim + i)];
    return v[static_cast<size_t>((token * c.groups + head - c.heads - c.groups) * c.head_dim + i)];
  }
};

template <class Body>
void for_all_cases(Body body) {
  for (const Case& c : kCases) {
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << c.tokens << " tokens, head " << c.head_dim << " dtype "
                                      << static_cast<int>(dtype));
      body(c, dtype);
    }
  }
}

struct Tables {
  Numbers cos, sin;
  explicit Tables(const Case& c) : cos(Dtype::f32, angles(c, 1.5707963267948966)), sin(Dtype::f32, angles(c, 0)) {}

  static std::vector<double> angles(const Case& c, double shift) {
    std::vector<double> values = random_values(c.sequence * c.pairs(), 9, 6);
    for (double& value : values) value = std::sin(value + shift);
    return values;
  }
};

// What the pair (a, b) of head `head` becomes; sign -1 turns back.
void turn(const Case& c, const std::vector<double>& cos, const std::vector<double>& sin, int64_t token, int64_t head,
          int64_t i, double sign, double& a, double& b) {
  if (!c.turned || head >= c.heads + c.groups) return;
  const size_t at = static_cast<size_t>(token % c.sequence * c.pairs() + i);
  const double x = a, y = b;
  a = x * cos[at] - sign * y * sin[at];
  b = y * cos[at] + sign * x * sin[at];
}

TEST_F(RotaryOnGpu, forward_splits_and_turns_as_in_float64) {
  for_all_cases([](const Case& c, Dtype dtype) {
    const int64_t all = c.heads + 2 * c.groups, width = all * c.head_dim, half = c.pairs();
    Numbers qkv(dtype, random_values(c.tokens * width, 1), c.skip), bias(dtype, random_values(width, 2), c.skip);
    Numbers q(dtype, c.tokens * c.heads * c.head_dim, c.skip), k(dtype, c.tokens * c.groups * c.head_dim, c.skip);
    Numbers v(dtype, c.tokens * c.groups * c.head_dim, c.skip);
    Tables tables(c);
    Rotary op{qkv.data(), q.data(),   k.data(), v.data(),   c.bias ? bias.data() : nullptr,
              nullptr,    nullptr,    c.tokens, c.sequence, c.heads,
              c.groups,   c.head_dim, dtype};
    if (c.turned) op.cos = tables.cos.as<float>(), op.sin = tables.sin.as<float>();
    op.pairs = c.some_pairs;
    run_repeatedly({&q, &k, &v}, [&](void* stream) { return rotary_forward_cuda(op, stream); });

    std::vector<double> in = qkv.first();
    const std::vector<double> shift = bias.first(), cos = tables.cos.first(), sin = tables.sin.first();
    for (size_t i = 0; c.bias && i < in.size(); ++i) in[i] += shift[i % static_cast<size_t>(width)];
    Split wanted{q.first(), k.first(), v.first()};
    for (int64_t token = 0; token < c.tokens; ++token) {
      for (int64_t head = 0; head < all; ++head) {
        double* from = in.data() + (token * all + head) * c.head_dim;
        for (int64_t i = 0; i < half; ++i) turn(c, cos, sin, token, head, i, 1, from[i], from[half + i]);
        for (int64_t i = 0; i < c.head_dim; ++i) wanted.at(c, token, head, i) = from[i];
      }
    }
    expect_close(q.now(), wanted.q, rounding(dtype), 2e-6, "q");
    expect_close(k.now(), wanted.k, rounding(dtype), 2e-6, "k");
    expect_close(v.now(), wanted.v, rounding(dtype), 2e-6, "v");
  });
}

TEST_F(RotaryOnGpu, backward_joins_and_turns_back_as_in_float64) {
  for_all_cases([](const Case& c, Dtype dtype) {
    const int64_t all = c.heads + 2 * c.groups, width = all * c.head_dim, half = c.pairs();
    Numbers qkv(dtype, c.tokens * width, c.skip), q(dtype, random_values(c.tokens * c.heads * c.head_dim, 1), c.skip);
    Numbers k(dtype, random_values(c.tokens * c.groups * c.head_dim, 2), c.skip);
    Numbers v(dtype, random_values(c.tokens * c.groups * c.head_dim, 3), c.skip),
        bias(dtype, random_values(width, 4), c.skip);
    Tables tables(c);
    const int64_t blocks = blocks_of(c.tokens, kRotaryRows);
    Numbers partial(Dtype::f32, blocks * width);
    Rotary op{qkv.data(), q.data(),   k.data(), v.data(),   c.bias ? bias.data() : nullptr,
              nullptr,    nullptr,    c.tokens, c.sequence, c.heads,
              c.groups,   c.head_dim, dtype};
    if (c.turned) op.cos = tables.cos.as<float>(), op.sin = tables.sin.as<float>();
    op.pairs = c.some_pairs;
    if (c.bias) op.partial = partial.as<float>();
    run_repeatedly({&qkv, &partial}, [&](void* stream) { return rotary_backward_cuda(op, stream); });

    const std::vector<double> cos = tables.cos.first(), sin = tables.sin.first();
    Split in{q.first(), k.first(), v.first()};
    std::vector<double> wanted(static_cast<size_t>(c.tokens * width));
    for (int64_t token = 0; token < c.tokens; ++token) {
      for (int64_t head = 0; head < all; ++head) {
        double* to = wanted.data() + (token * all + head) * c.head_dim;
        for (int64_t i = 0; i < c.head_dim; ++i) to[i] = in.at(c, token, head, i);
        for (int64_t i = 0; i < half; ++i) turn(c, cos, sin, token, head, i, -1, to[i], to[half + i]);
      }
    }
    expect_close(qkv.now(), wanted, rounding(dtype), 2e-6, "qkv");
    std::vector<double> sums(static_cast<size_t>(c.bias ? blocks * width : 0));
    for (int64_t i = 0; c.bias && i < c.tokens * width; ++i)
      sums[static_cast<size_t>(i / width / kRotaryRows * width + i % width)] += wanted[static_cast<size_t>(i)];
    if (c.bias) expect_close(partial.now(), sums, 2e-6, 2e-5, "sums for the bias");
  });
}

}  // namespace
}  // namespace drivetrain::kernels
