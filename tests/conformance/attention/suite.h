// What every attention must do, against plain float64 loops over the formula. A plugin's test calls
// run_attention_suite. To add a case, add a line to `cases`; it runs in every dtype the plugin declares, or must be
// refused if not declared.
#pragma once

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <random>

#include <drivetrain/attention.h>
#include <drivetrain/toolkit/layers/attend.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {

struct AttentionCase {
  const char* what;
  int64_t B, S, T, H, G, D;
  AttentionArgs args;  // scale is set by the suite
};

inline AttentionArgs attention_args(bool causal, int64_t window = 0, int64_t q_offset = 0,
                                    std::vector<int64_t> ends = {}) {
  AttentionArgs args;
  args.causal = causal, args.window = window, args.q_offset = q_offset, args.varlen.cu_seqlens = std::move(ends);
  return args;
}

inline std::vector<AttentionCase> attention_cases() {
  return {
      {"causal", 2, 7, 7, 4, 4, 8, attention_args(true)},
      {"full", 2, 7, 7, 4, 4, 8, attention_args(false)},
      {"one token", 1, 1, 1, 2, 1, 4, attention_args(true)},
      {"odd head size, grouped", 2, 9, 9, 6, 2, 5, attention_args(true)},
      {"one key/value head", 1, 6, 6, 5, 1, 3, attention_args(false)},
      {"longer than a kernel block", 1, 300, 300, 2, 1, 16, attention_args(true)},
      {"more keys than queries, full", 2, 3, 11, 4, 2, 8, attention_args(false)},
      {"more queries than keys, causal", 1, 9, 4, 2, 2, 8, attention_args(true)},
      {"the next token after its past", 2, 1, 10, 4, 2, 8, attention_args(true, 0, 9)},
      {"a block of queries after their past", 1, 4, 10, 2, 2, 8, attention_args(true, 0, 6)},
      {"queries before all keys", 1, 6, 4, 2, 1, 8, attention_args(true, 0, -3)},
      {"window", 2, 12, 12, 4, 2, 8, attention_args(true, 5)},
      {"window on both sides", 1, 12, 12, 2, 2, 8, attention_args(false, 3)},
      {"window of one", 1, 5, 5, 2, 2, 8, attention_args(true, 1)},
      {"several sequences", 1, 12, 12, 4, 2, 8, attention_args(true, 0, 0, {0, 1, 5, 12})},
      {"several sequences, full", 1, 12, 12, 2, 2, 8, attention_args(false, 0, 0, {0, 4, 4, 12})},
  };
}

struct AttentionResult {
  at::Tensor out, lse, dq, dk, dv;
};

inline at::Tensor normal_numbers(at::IntArrayRef sizes, uint64_t seed) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  double* data = x.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) data[i] = normal(generator);
  return x;
}

inline bool attention_sees(const AttentionArgs& args, int64_t i, int64_t j) {
  const int64_t distance = i + args.q_offset - j;
  if (args.causal && distance < 0) return false;
  if (args.window > 0 && std::abs(distance) >= args.window) return false;
  for (const int64_t end : args.varlen.cu_seqlens)
    if ((i < end) != (j < end)) return false;
  return true;
}

// The formula, element by element. Gradients: ds_ij = p_ij (dout_i . v_j - dout_i . out_i).
inline AttentionResult attention_reference(const at::Tensor& q_, const at::Tensor& k_, const at::Tensor& v_,
                                           const at::Tensor& dout_, const AttentionArgs& args) {
  const at::Tensor q = q_.to(at::kDouble).contiguous(), k = k_.to(at::kDouble).contiguous(),
                   v = v_.to(at::kDouble).contiguous(), dout = dout_.to(at::kDouble).contiguous();
  const int64_t B = q.size(0), S = q.size(1), H = q.size(2), D = q.size(3), T = k.size(1), G = k.size(2);
  AttentionResult r{at::zeros_like(q), at::zeros({B, H, S}, at::kDouble), at::zeros_like(q), at::zeros_like(k),
                    at::zeros_like(v)};
  const auto row = [&](const at::Tensor& x, int64_t b, int64_t s, int64_t h) {
    return x.mutable_data_ptr<double>() + ((b * x.size(1) + s) * x.size(2) + h) * D;
  };
  const auto dot = [&](const double* x, const double* y) {
    double sum = 0;
    for (int64_t d = 0; d < D; ++d) sum += x[d] * y[d];
    return sum;
  };
  const auto add = [&](double* to, double factor, const double* x) {
    for (int64_t d = 0; d < D; ++d) to[d] += factor * x[d];
  };
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < S; ++i) {
        const int64_t g = h / (H / G);
        std::vector<double> p(T, 0);
        double sum = 0;
        for (int64_t j = 0; j < T; ++j)
          if (attention_sees(args, i, j)) sum += p[j] = std::exp(args.scale * dot(row(q, b, i, h), row(k, b, j, g)));
        r.lse.mutable_data_ptr<double>()[(b * H + h) * S + i] = std::log(sum);
        if (sum == 0) continue;
        for (int64_t j = 0; j < T; ++j) add(row(r.out, b, i, h), p[j] /= sum, row(v, b, j, g));
        const double* di = row(dout, b, i, h);
        const double delta = dot(di, row(r.out, b, i, h));
        for (int64_t j = 0; j < T; ++j) {
          const double ds = args.scale * p[j] * (dot(di, row(v, b, j, g)) - delta);
          add(row(r.dv, b, j, g), p[j], di);
          add(row(r.dq, b, i, h), ds, row(k, b, j, g));
          add(row(r.dk, b, j, g), ds, row(q, b, i, h));
        }
      }
  return r;
}

// Values are of order 1 and sums have a few hundred terms: some units in the last place, more for gradients.
inline double attention_tolerance(at::ScalarType type) {
  if (type == at::kDouble) return 1e-12;
  if (type == at::kFloat) return 2e-5;
  return type == at::kHalf ? 1e-2 : 8e-2;
}

inline void expect_close(const at::Tensor& found, const at::Tensor& wanted, double tolerance, const char* what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  const at::Tensor a = found.to(at::kDouble).contiguous(), b = wanted.to(at::kDouble).contiguous();
  const double *x = a.const_data_ptr<double>(), *y = b.const_data_ptr<double>();
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (x[i] == y[i]) continue;  // infinities too
    ASSERT_NEAR(x[i], y[i], tolerance * std::max(1.0, std::abs(y[i]))) << what << " element " << i;
  }
}

inline void expect_close(const AttentionResult& found, const AttentionResult& wanted, double tolerance) {
  expect_close(found.out, wanted.out, tolerance, "out");
  expect_close(found.lse, wanted.lse, tolerance, "lse");
  expect_close(found.dq, wanted.dq, tolerance, "dq");
  expect_close(found.dk, wanted.dk, tolerance, "dk");
  expect_close(found.dv, wanted.dv, tolerance, "dv");
}

inline AttentionResult run_attention(const Attention& attention, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const at::Tensor& dout, const AttentionArgs& args) {
  const AttentionState state = attention.forward(q, k, v, args);
  const Tensors grads = attention.backward(dout, state, args);
  return {state.out, state.lse, grads[0], grads[1], grads[2]};
}

struct AttentionInputs {
  at::Tensor q, k, v, dout;
};
inline AttentionInputs attention_inputs(const AttentionCase& c, at::ScalarType type = at::kDouble) {
  // q, k and v are slices of one fused tensor where they can be, as models have them: not contiguous.
  const at::Tensor fused = normal_numbers({c.B, std::max(c.S, c.T), c.H + 2 * c.G, c.D}, 1).to(type);
  return {fused.narrow(1, 0, c.S).narrow(2, 0, c.H), fused.narrow(1, 0, c.T).narrow(2, c.H, c.G),
          fused.narrow(1, 0, c.T).narrow(2, c.H + c.G, c.G), normal_numbers({c.B, c.S, c.H, c.D}, 2).to(type)};
}

// Declared abilities work in every declared dtype; the rest is refused with the plugin's name.
inline void check_against_reference(const Attention& attention, const std::string& name) {
  const AttentionAbilities can = attention.abilities();
  for (AttentionCase c : attention_cases()) {
    c.args.scale = 1 / std::sqrt(static_cast<double>(c.D));
    const bool declared = (can.gqa || c.G == c.H) && (can.window || c.args.window == 0) &&
                          (can.varlen || c.args.varlen.cu_seqlens.empty()) && (can.non_causal || c.args.causal) &&
                          (can.q_offset || c.args.q_offset == 0) &&
                          (can.head_sizes.empty() || can.head_sizes.contains(c.D));
    for (const at::ScalarType type : can.dtypes) {
      SCOPED_TRACE(concat(c.what, ", ", type));
      const AttentionInputs x = attention_inputs(c, type);
      AttentionResult found;
      const std::string refusal = error_of([&] { found = run_attention(attention, x.q, x.k, x.v, x.dout, c.args); });
      EXPECT_TRUE(refusal.empty() || !declared) << refusal;
      if (!refusal.empty()) {  // what is not declared may still work where a case happens to need less
        EXPECT_EQ(refusal.find(name + ": "), 0u) << refusal;
        EXPECT_NE(refusal.find(can.remedy), std::string::npos) << refusal;
        continue;
      }
      EXPECT_EQ(found.out.scalar_type(), type);
      EXPECT_EQ(found.dk.scalar_type(), type);
      EXPECT_EQ(found.lse.scalar_type(), type == at::kDouble ? at::kDouble : at::kFloat);
      expect_close(found, attention_reference(x.q, x.k, x.v, x.dout, c.args), attention_tolerance(type));
    }
  }
}

// sum(out * dout) along a random direction of q, k and v, by central differences in float64.
inline void check_gradient_by_differences(const Attention& attention, AttentionArgs args) {
  const AttentionCase c{"", 2, 6, 6, 4, attention.abilities().gqa ? 2 : 4, 4, {}};
  args.scale = 0.5;
  const AttentionInputs x = attention_inputs(c);
  const at::Tensor uq = normal_numbers(x.q.sizes(), 3), uk = normal_numbers(x.k.sizes(), 4),
                   uv = normal_numbers(x.v.sizes(), 5);
  const auto value = [&](double h) {
    return attention.forward(x.q + uq * h, x.k + uk * h, x.v + uv * h, args).out.mul(x.dout).sum().item<double>();
  };
  const AttentionResult r = run_attention(attention, x.q, x.k, x.v, x.dout, args);
  const double slope = r.dq.mul(uq).sum().add(r.dk.mul(uk).sum()).add(r.dv.mul(uv).sum()).item<double>();
  const double h = 1e-5;  // error h^2 of the difference and 1e-16 / h of rounding
  EXPECT_NEAR((value(h) - value(-h)) / (2 * h), slope, 1e-8 * std::max(1.0, std::abs(slope)));
}

// Keys in two blocks, as ring attention has them: out and lse merged, backward per block with the merged ones.
inline void check_merged_blocks(const Attention& attention, const AttentionArgs& first, const AttentionArgs& second,
                                const AttentionArgs& whole) {
  const AttentionCase c{"", 2, 10, 10, 4, attention.abilities().gqa ? 2 : 4, 8, {}};
  const AttentionInputs x = attention_inputs(c);
  const int64_t cut = 4;
  const auto block = [&](const at::Tensor& t, bool second_one) {
    return second_one ? t.narrow(1, cut, c.T - cut) : t.narrow(1, 0, cut);
  };
  AttentionState a = attention.forward(x.q, block(x.k, false), block(x.v, false), first);
  AttentionState b = attention.forward(x.q, block(x.k, true), block(x.v, true), second);
  const at::Tensor lse = at::logaddexp(a.lse, b.lse);
  const auto share = [&](const AttentionState& s) { return s.lse.sub(lse).exp().transpose(1, 2).unsqueeze(-1); };
  const at::Tensor out = a.out.mul(share(a)).add(b.out.mul(share(b)));
  a.out = b.out = out, a.lse = b.lse = lse;
  const Tensors da = attention.backward(x.dout, a, first), db = attention.backward(x.dout, b, second);
  expect_close({out, lse, da[0].add(db[0]), at::cat({da[1], db[1]}, 1), at::cat({da[2], db[2]}, 1)},
               attention_reference(x.q, x.k, x.v, x.dout, whole), 1e-12);
}

inline void check_same_bits_twice(const Attention& attention) {
  AttentionCase c{"", 2, 130, 130, 4, attention.abilities().gqa ? 2 : 4, 16, attention_args(true)};
  c.args.scale = 0.25;
  const AttentionInputs x = attention_inputs(c, at::kFloat);
  const AttentionResult a = run_attention(attention, x.q, x.k, x.v, x.dout, c.args);
  for (int i = 0; i < 3; ++i) {
    const AttentionResult b = run_attention(attention, x.q, x.k, x.v, x.dout, c.args);
    EXPECT_TRUE(at::equal(a.out, b.out) && at::equal(a.lse, b.lse) && at::equal(a.dq, b.dq) && at::equal(a.dk, b.dk) &&
                at::equal(a.dv, b.dv));
  }
}

inline void check_attend_is_differentiable(const Attention& attention) {
  AttentionCase c{"", 2, 6, 6, 4, 4, 8, attention_args(true)};
  c.args.scale = 0.25;
  const AttentionInputs x = attention_inputs(c);
  const at::Tensor q = x.q.clone().set_requires_grad(true), k = x.k.clone().set_requires_grad(true),
                   v = x.v.clone().set_requires_grad(true);
  const std::shared_ptr<const Attention> shared(std::shared_ptr<void>(), &attention);  // owned by the caller
  const auto uses = q.storage().use_count();
  { const at::Tensor dropped = attend(shared, q, k, v, c.args); }  // a graph that never runs backward is freed
  EXPECT_EQ(q.storage().use_count(), uses);
  attend(shared, q, k, v, c.args).backward(x.dout);
  const AttentionResult direct = run_attention(attention, x.q, x.k, x.v, x.dout, c.args);
  expect_close(q.grad(), direct.dq, 1e-14, "dq");
  expect_close(k.grad(), direct.dk, 1e-14, "dk");
  expect_close(v.grad(), direct.dv, 1e-14, "dv");
}

inline void check_arguments(const Attention& attention, const std::string& name) {
  const at::Tensor q = at::zeros({2, 3, 4, 8}), k = at::zeros({2, 3, 4, 8});
  const auto refusal = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, auto change) {
    AttentionArgs args;
    args.scale = 1;
    change(args);
    return error_of([&] { attention.forward(q, k, v, args); });
  };
  const auto none = [](AttentionArgs&) {};
  const auto expect = [&](const std::string& found, const char* part) {
    EXPECT_EQ(found.find(name + ": "), 0u) << found;
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  expect(refusal(q[0], k, k, none), "must be [batch, sequence, heads, head size]");
  expect(refusal(q, k, k.narrow(1, 0, 2), none), "one shape");
  expect(refusal(q, at::zeros({2, 3, 3, 8}), at::zeros({2, 3, 3, 8}), none), "must divide");
  expect(refusal(q, at::zeros({1, 3, 4, 8}), at::zeros({1, 3, 4, 8}), none), "agree in batch");
  expect(refusal(q, k.to(at::kDouble), k, none), "one dtype");
  expect(refusal(q, k, k, [](AttentionArgs& a) { a.scale = 0; }), "scale must be above 0");
  expect(refusal(q, k, k, [](AttentionArgs& a) { a.dropout = 1; }), "dropout must be in [0, 1)");
  expect(refusal(q, k, k, [](AttentionArgs& a) { a.window = -1; }), "window must not be negative");
}

inline void run_attention_suite(const Attention& attention, const std::string& name) {
  check_against_reference(attention, name);
  check_gradient_by_differences(attention, attention_args(true));
  check_gradient_by_differences(attention, attention_args(false));
  AttentionArgs full = attention_args(false), causal = attention_args(true), later = attention_args(true, 0, -4);
  full.scale = causal.scale = later.scale = 0.3;
  check_merged_blocks(attention, full, full, full);
  if (attention.abilities().q_offset) check_merged_blocks(attention, causal, later, causal);
  check_same_bits_twice(attention);
  check_attend_is_differentiable(attention);
  check_arguments(attention, name);
}

}  // namespace drivetrain::test
