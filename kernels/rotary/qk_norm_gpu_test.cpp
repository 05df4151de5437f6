// Norms of queries and keys with rotary embedding on CUDA against the CPU's kernel, which is held against float64:
// grouped heads, some pairs, heads of one thread and of many, threads without a head.
#include "kernels/rotary/qk_norm.h"

#include "kernels/common/device_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class QkNormOnGpu : public DeviceTest {};

struct Case {
  int64_t tokens, sequence, heads, groups, head_dim, pairs;
  bool turned, bias;
  float offset;
};
constexpr Case kCases[] = {{21, 7, 4, 2, 64, 0, true, true, 0},     {9, 9, 3, 3, 128, 0, true, false, 1},
                           {70, 35, 2, 1, 16, 0, true, true, 0},    {5, 5, 5, 1, 128, 32, true, true, 0},
                           {130, 65, 2, 2, 64, 0, false, false, 0}, {0, 4, 2, 1, 64, 0, true, false, 0}};

std::vector<double> angles(const Case& c, double shift) {
  std::vector<double> values = random_values(c.sequence * (c.pairs > 0 ? c.pairs : c.head_dim / 2), 9, 6);
  for (double& value : values) value = std::sin(value + shift);
  return values;
}

// Everything in one type, on the device.
struct Device {
  Device(const Case& c, Dtype dtype)
      : qkv(dtype, random_values(c.tokens * width(c), 1)),
        bias(dtype, random_values(width(c), 2)),
        q_weight(dtype, random_values(c.head_dim, 3)),
        k_weight(dtype, random_values(c.head_dim, 4)),
        q(dtype, random_values(c.tokens * c.heads * c.head_dim, 5)),
        k(dtype, random_values(c.tokens * c.groups * c.head_dim, 6)),
        v(dtype, random_values(c.tokens * c.groups * c.head_dim, 7)),
        dqkv(dtype, c.tokens * width(c)),
        cos(Dtype::f32, angles(c, 1.5707963267948966)),
        sin(Dtype::f32, angles(c, 0)),
        q_partial(Dtype::f32, blocks_of(c.tokens, kRotaryRows) * c.heads * c.head_dim),
        k_partial(Dtype::f32, blocks_of(c.tokens, kRotaryRows) * c.groups * c.head_dim) {}
  static int64_t width(const Case& c) { return (c.heads + 2 * c.groups) * c.head_dim; }
  Numbers qkv, bias, q_weight, k_weight, q, k, v, dqkv, cos, sin, q_partial, k_partial;
};

// The same numbers in float32 for the CPU's kernel.
struct Host {
  explicit Host(const Device& d)
      : qkv(floats(d.qkv)),
        bias(floats(d.bias)),
        q_weight(floats(d.q_weight)),
        k_weight(floats(d.k_weight)),
        q(floats(d.q)),
        k(floats(d.k)),
        v(floats(d.v)),
        dqkv(qkv.size()),
        cos(floats(d.cos)),
        sin(floats(d.sin)),
        q_partial(d.q_partial.first().size()),
        k_partial(d.k_partial.first().size()) {}
  static std::vector<float> floats(const Numbers& numbers) {
    const std::vector<double> values = numbers.first();
    return {values.begin(), values.end()};
  }
  std::vector<float> qkv, bias, q_weight, k_weight, q, k, v, dqkv, cos, sin, q_partial, k_partial;
};

template <class Memory, class At>
QkNormRotary arguments(const Case& c, Memory& m, bool back, Dtype dtype, At at) {
  QkNormRotary op;
  Rotary& r = op.rotary;
  r.qkv = back ? at(m.dqkv) : at(m.qkv), r.q = at(m.q), r.k = at(m.k), r.v = at(m.v);
  r.bias = c.bias ? at(m.bias) : nullptr;
  if (c.turned) r.cos = static_cast<float*>(at(m.cos)), r.sin = static_cast<float*>(at(m.sin));
  r.tokens = c.tokens, r.sequence = c.sequence, r.heads = c.heads, r.groups = c.groups, r.head_dim = c.head_dim;
  r.dtype = dtype, r.pairs = c.pairs;
  op.q_weight = at(m.q_weight), op.k_weight = at(m.k_weight), op.epsilon = 1e-3F, op.offset = c.offset;
  if (!back) return op;
  op.x = at(m.qkv);
  op.q_partial = static_cast<float*>(at(m.q_partial)), op.k_partial = static_cast<float*>(at(m.k_partial));
  return op;
}
QkNormRotary arguments(const Case& c, Device& d, bool back, Dtype dtype) {
  return arguments(c, d, back, dtype, [](Numbers& numbers) { return numbers.data(); });
}
QkNormRotary arguments(const Case& c, Host& h, bool back) {
  return arguments(c, h, back, Dtype::f32, [](std::vector<float>& x) { return static_cast<void*>(x.data()); });
}

template <class Body>
void for_all_cases(Body body) {
  for (const Case& c : kCases)
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << c.tokens << " tokens, head " << c.head_dim << " dtype "
                                      << static_cast<int>(dtype));
      body(c, dtype);
    }
}

TEST_F(QkNormOnGpu, forward_equals_the_cpu) {
  for_all_cases([](const Case& c, Dtype dtype) {
    Device d(c, dtype);
    Host h(d);
    const QkNormRotary op = arguments(c, d, false, dtype);
    ASSERT_TRUE(qk_norm_fits_cuda(op));
    run_repeatedly({&d.q, &d.k, &d.v}, [&](void* stream) { return qk_norm_forward_cuda(op, stream); });
    qk_norm_forward_cpu(arguments(c, h, false), 0, c.tokens);
    expect_close(d.q.now(), widened(h.q), rounding(dtype), 1e-5, "q");
    expect_close(d.k.now(), widened(h.k), rounding(dtype), 1e-5, "k");
    expect_close(d.v.now(), widened(h.v), rounding(dtype), 1e-5, "v");
  });
}

TEST_F(QkNormOnGpu, backward_equals_the_cpu) {
  for_all_cases([](const Case& c, Dtype dtype) {
    Device d(c, dtype);
    Host h(d);
    const QkNormRotary op = arguments(c, d, true, dtype);
    run_repeatedly({&d.dqkv, &d.q_partial, &d.k_partial}, [&](void* s) { return qk_norm_backward_cuda(op, s); });
    const int64_t blocks = blocks_of(c.tokens, kRotaryRows);
    qk_norm_backward_cpu(arguments(c, h, true), 0, blocks);
    expect_close(d.dqkv.now(), widened(h.dqkv), rounding(dtype), 3e-5, "dqkv");
    const auto over_heads = [&](const Numbers& partial, int64_t heads) {
      const std::vector<double> all = partial.now();
      std::vector<double> sums(static_cast<size_t>(blocks * c.head_dim));
      for (size_t i = 0; i < all.size(); ++i) {
        const auto C = static_cast<size_t>(c.head_dim), row = i / C / static_cast<size_t>(heads);
        sums[row * C + i % C] += all[i];
      }
      return sums;
    };
    h.q_partial.resize(static_cast<size_t>(blocks * c.head_dim));
    h.k_partial.resize(static_cast<size_t>(blocks * c.head_dim));
    expect_close(over_heads(d.q_partial, c.heads), widened(h.q_partial), 2e-5, 1e-4, "q's weight");
    expect_close(over_heads(d.k_partial, c.groups), widened(h.k_partial), 2e-5, 1e-4, "k's weight");
  });
}

TEST_F(QkNormOnGpu, leaves_heads_that_are_no_power_of_two_of_threads) {
  for (const int64_t head_dim : {80, 96, 6}) {
    const Case c{4, 4, 2, 1, head_dim, 0, true, false, 0};
    Device d(c, Dtype::bf16);
    EXPECT_FALSE(qk_norm_fits_cuda(arguments(c, d, false, Dtype::bf16))) << head_dim;
  }
}

}  // namespace
}  // namespace drivetrain::kernels
