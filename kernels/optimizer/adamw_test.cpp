// Adam on the CPU against float64, and what must hold bit by bit.
//
// The same source once more without vector code, to compare bits with.
#define DRIVETRAIN_VECTOR_CLONES
#define adam_cpu adam_cpu_plain
#include "kernels/optimizer/adamw_cpu.cpp"
#undef adam_cpu

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/test_numbers.h"

namespace drivetrain::kernels {
DRIVETRAIN_KERNEL void adam_cpu(const Adam&, int64_t begin, int64_t end);
namespace {

using namespace test;

constexpr int64_t kSizes[] = {1, 2, 7, 15, 16, 17, 100, 1023, 1024, 1025, 5003};

// Arrays of n elements in the middle of their parameter's life, and an operation over them.
struct Problem {
  explicit Problem(int64_t n)
      : value(normal_numbers(n, 1)),
        m(normal_numbers(n, 2, 0.1F)),
        v(normal_numbers(n, 3)),
        grad(normal_numbers(n, 4)),
        half(n),
        working(n, 0xABCD) {
    for (float& x : v) x = x * x + 1e-4F;
    write_half(Dtype::bf16);
  }

  void write_half(Dtype type) {
    half_type = type;
    for (size_t i = 0; i < half.size(); ++i) half[i] = type == Dtype::f16 ? to_f16(grad[i]) : to_bf16(grad[i]);
  }
  float gradient(Dtype type, int64_t i) const {
    return type == Dtype::f32 ? grad[i] : type == Dtype::f16 ? widened(F16{half[i]}) : widened(Bf16{half[i]});
  }

  Adam op(Dtype grad_dtype = Dtype::f32) {
    Adam op;
    if (grad_dtype != Dtype::f32 && grad_dtype != half_type) write_half(grad_dtype);
    op.value = value.data(), op.m = m.data(), op.v = v.data();
    op.grad = grad_dtype == Dtype::f32 ? static_cast<void*>(grad.data()) : half.data();
    op.grad_dtype = grad_dtype;
    op.n = static_cast<int64_t>(value.size());
    op.beta2 = 0.99;
    op.scalars = {hyper, &grad_scale, &skip, &step};
    return op;
  }

  std::vector<float> value, m, v, grad;
  std::vector<uint16_t> half, working;
  Dtype half_type = Dtype::bf16;
  double hyper[3] = {0.01, 0.1, 0.8}, grad_scale = 0.37;
  bool skip = false;
  int64_t step = 3;
};

bool same(const Problem& a, const Problem& b) {
  return a.value == b.value && a.m == b.m && a.v == b.v && a.grad == b.grad && a.half == b.half &&
         a.working == b.working;
}

struct Expected {
  double p, m, v;                 // after the update
  double p_room, m_room, v_room;  // for rounding: each term's own size, so that terms may cancel
};

Expected expected(const Problem& x, const Adam& op, int64_t i) {
  const auto [lr, decay, beta1] = x.hyper;
  const double t = static_cast<double>(x.step + 1), p = x.value[i];
  const double scaled = x.gradient(op.grad_dtype, i) * x.grad_scale;
  const double g = scaled + (op.l2 ? decay * p : 0), g_size = std::abs(scaled) + (op.l2 ? std::abs(decay * p) : 0);
  Expected e{};
  e.m = beta1 * x.m[i] + (1 - beta1) * g;
  e.v = op.beta2 * x.v[i] + (1 - op.beta2) * g * g;
  const double c1 = op.bias_correction ? 1 - std::pow(beta1, t) : 1,
               c2 = op.bias_correction ? 1 - std::pow(op.beta2, t) : 1;
  const double rate = lr / c1 / (std::sqrt(e.v / c2) + op.epsilon);
  e.p = p * (op.l2 ? 1 : 1 - lr * decay) - rate * e.m;
  e.m_room = 3 * kUlp * (std::abs(beta1 * x.m[i]) + (1 - beta1) * g_size);
  e.v_room = 4 * kUlp * (op.beta2 * x.v[i] + (1 - op.beta2) * g_size * g_size);
  e.p_room = kUlp * (2 * std::abs(p) + 6 * rate * std::abs(e.m)) + rate * (e.m_room + std::abs(e.m) * e.v_room / e.v);
  return e;
}

void check(Problem x, Adam op) {
  std::vector<Expected> all;
  for (int64_t i = 0; i < op.n; ++i) all.push_back(expected(x, op, i));
  Problem after = x;
  Adam run = after.op(op.grad_dtype);
  run.l2 = op.l2, run.bias_correction = op.bias_correction;
  adam_cpu(run, 0, op.n);
  for (int64_t i = 0; i < op.n; ++i) {
    ASSERT_NEAR(after.m[i], all[i].m, all[i].m_room) << i;
    ASSERT_NEAR(after.v[i], all[i].v, all[i].v_room) << i;
    ASSERT_NEAR(after.value[i], all[i].p, all[i].p_room) << i << " of " << op.n;
  }
}

TEST(AdamCpu, agrees_with_float64_in_every_mode) {
  for (const int64_t n : kSizes) {
    for (int mode = 0; mode < 24; ++mode) {
      Problem x(n);
      if (mode & 1) x.step = 0;
      Adam op = x.op(mode & 16 ? Dtype::f16 : mode & 2 ? Dtype::bf16 : Dtype::f32);
      op.l2 = mode & 4, op.bias_correction = mode & 8;
      check(x, op);
    }
  }
}

TEST(AdamCpu, the_first_step_has_the_length_of_the_rate) {
  Problem x(3);
  x.value = {0, 0, 0}, x.m = x.v = {0, 0, 0}, x.grad = {5, -0.001F, 0}, x.step = 0;
  adam_cpu(x.op(), 0, 3);
  EXPECT_NEAR(x.value[0], -0.01, 1e-8);
  EXPECT_NEAR(x.value[1], 0.01, 1e-6);  // epsilon is 2.7e-5 of the scaled gradient
  EXPECT_EQ(x.value[2], 0);
}

// How it is cut, and whether there is vector code, must not show.
TEST(AdamCpu, cuts_and_vector_widths_do_not_change_a_bit) {
  for (const int64_t n : kSizes) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      Problem whole(n), pieces(n), plain(n);
      const auto op = [&](Problem& x) {
        Adam op = x.op(dtype);
        op.working = x.working.data(), op.zero_grad = true;
        return op;
      };
      adam_cpu(op(whole), 0, n);
      in_pieces(odd_cuts(n), [&](int64_t begin, int64_t end) { adam_cpu(op(pieces), begin, end); });
      adam_cpu_plain(op(plain), 0, n);
      EXPECT_TRUE(same(whole, pieces)) << n;
      EXPECT_TRUE(same(whole, plain)) << n;
    }
  }
}

TEST(AdamCpu, nothing_outside_the_range_is_touched) {
  const Problem before(2000);
  Problem x(2000);
  Adam op = x.op();
  op.working = x.working.data(), op.zero_grad = true;
  adam_cpu(op, 5, 1900);
  for (const int64_t i : {0, 4, 1900, 1999}) {
    EXPECT_EQ(x.value[i], before.value[i]);
    EXPECT_EQ(x.m[i], before.m[i]);
    EXPECT_EQ(x.v[i], before.v[i]);
    EXPECT_EQ(x.grad[i], before.grad[i]);
    EXPECT_EQ(x.working[i], before.working[i]);
  }
  EXPECT_NE(x.value[5], before.value[5]);
  EXPECT_NE(x.value[1899], before.value[1899]);
}

TEST(AdamCpu, skip_leaves_everything) {
  const Problem before(1500);
  Problem x(1500);
  Adam op = x.op();
  x.skip = true;
  op.working = x.working.data(), op.zero_grad = true;
  adam_cpu(op, 0, 1500);
  EXPECT_TRUE(same(x, before));
}

TEST(AdamCpu, the_working_copy_is_the_rounded_value_and_nothing_else_depends_on_it) {
  for (const int64_t n : kSizes) {
    Problem x(n), without(n);
    adam_cpu(without.op(), 0, n);
    Adam op = x.op();
    op.working = x.working.data();
    adam_cpu(op, 0, n);
    EXPECT_EQ(x.value, without.value);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(x.working[i], to_bf16(x.value[i]));
    op.working_dtype = Dtype::f16;
    adam_cpu(op, 0, n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(x.working[i], to_f16(x.value[i]));
  }
}

TEST(AdamCpu, the_gradient_is_left_zero_if_asked_and_else_alone) {
  for (const int64_t n : kSizes) {
    Problem x(n);
    const Problem before(n);
    adam_cpu(x.op(), 0, n);
    EXPECT_EQ(x.grad, before.grad);
    Adam op = x.op(), of_half = x.op(Dtype::bf16);
    op.zero_grad = of_half.zero_grad = true;
    adam_cpu(op, 0, n);
    adam_cpu(of_half, 0, n);
    EXPECT_EQ(x.grad, std::vector<float>(n, 0.0F));
    EXPECT_EQ(x.half, std::vector<uint16_t>(n, 0));
  }
}

}  // namespace
}  // namespace drivetrain::kernels
