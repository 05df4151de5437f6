#include <drivetrain/testkit/attention/suite.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <functional>

#include <drivetrain/toolkit/layers/attend.h>

#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/host.h>

namespace drivetrain::test {
namespace {

std::vector<AttentionCase> attention_cases() {
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
      {"window over kernel blocks, grouped", 1, 220, 220, 2, 1, 8, attention_args(true, 70)},
      {"window longer than the sequence", 1, 9, 9, 2, 2, 8, attention_args(true, 20)},
      {"window, the next token after its past", 2, 1, 80, 4, 2, 8, attention_args(true, 5, 79)},
      {"window, a block of queries after their past", 1, 70, 150, 2, 1, 8, attention_args(true, 9, 80)},
      {"window on both sides, keys at a distance", 1, 12, 9, 2, 2, 8, attention_args(false, 4, 7)},
      {"window, keys that end before", 1, 10, 6, 2, 1, 8, attention_args(true, 4, 5)},
      {"window, several sequences in each row", 2, 12, 12, 4, 2, 8, attention_args(true, 3, 0, {0, 1, 5, 12, 19, 24})},
      {"window over kernel blocks, several sequences", 1, 200, 200, 1, 1, 8,
       attention_args(true, 66, 0, {0, 3, 150, 200})},
      {"softcap", 2, 9, 9, 4, 2, 8, attention_args(true, 0, 0, {}, 0.7)},
      {"softcap, full, more keys than queries", 1, 3, 11, 2, 2, 8, attention_args(false, 0, 0, {}, 2)},
      {"softcap, the next token after its past", 1, 1, 10, 4, 2, 8, attention_args(true, 0, 9, {}, 1.5)},
      {"softcap, window, over kernel blocks", 1, 150, 150, 2, 1, 8, attention_args(true, 70, 0, {}, 1.5)},
      {"softcap, several sequences, window", 1, 12, 12, 2, 2, 8, attention_args(true, 4, 0, {0, 5, 12}, 1)},
      {"softcap far above the scores", 1, 7, 7, 2, 2, 8, attention_args(true, 0, 0, {}, 50)},
      {"several sequences", 1, 12, 12, 4, 2, 8, attention_args(true, 0, 0, {0, 1, 5, 12})},
      {"several sequences, full", 1, 12, 12, 2, 2, 8, attention_args(false, 0, 0, {0, 4, 12})},
      {"several sequences in each row", 2, 12, 12, 4, 2, 8, attention_args(true, 0, 0, {0, 1, 5, 12, 19, 24})},
  };
}

// What is not declared has to be refused, which is tried; what it would compute is not.
void tell_undeclared(const AttentionAbilities& can) {
  const std::pair<const char*, bool> abilities[] = {{"gqa", can.gqa},
                                                    {"varlen", can.varlen},
                                                    {"window", can.window},
                                                    {"softcap", can.softcap},
                                                    {"q_offset", can.q_offset},
                                                    {"dropout", can.dropout},
                                                    {"non_causal", can.non_causal},
                                                    {"returns_lse", can.returns_lse},
                                                    {"partial_keys", can.partial_keys},
                                                    {"partial_heads", can.partial_heads}};
  for (const auto& [ability, declared] : abilities)
    if (!declared) left_out(ability, concat("AttentionAbilities::", ability, " is false"));
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    if (!can.dtypes.contains(type)) left_out(c10::toString(type), "AttentionAbilities::dtypes does not have it");
}

// Declared abilities work in every declared dtype; the rest is refused with the plugin's name.
void check_against_reference(const Attention& attention, const std::string& name) {
  const AttentionAbilities can = attention.abilities();
  tell_undeclared(can);
  for (AttentionCase c : attention_cases()) {
    c.args.scale = 1 / std::sqrt(static_cast<double>(c.D));
    const bool declared = (can.gqa || c.G == c.H) && (can.window || c.args.window == 0) &&
                          (can.varlen || c.args.varlen.cu_seqlens.empty()) && (can.non_causal || c.args.causal) &&
                          (can.q_offset || c.args.q_offset == 0) && (can.softcap || c.args.softcap == 0) &&
                          (can.head_sizes.empty() || can.head_sizes.contains(c.D));
    for (const at::ScalarType type : can.dtypes) {
      SCOPED_TRACE(concat(c.what, ", ", type));
      const AttentionInputs x = attention_inputs(c, type);
      AttentionResult found;
      const std::string refusal = error_of([&] { found = run_attention(attention, x.q, x.k, x.v, x.dout, c.args); });
      EXPECT_TRUE(refusal.empty() || !declared) << refusal;
      if (refusal.empty() && c.args.softcap > 0) {  // no case of it happens to need less
        EXPECT_TRUE(can.softcap) << "AttentionAbilities::softcap is false, and softcap is not refused";
      }
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

}  // namespace

void check_gradient_by_differences(const Attention& attention, AttentionArgs args) {
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

namespace {

// Keys in two blocks, as ring attention has them: out and lse merged, backward per block with the merged ones.
void check_merged_blocks(const Attention& attention, const AttentionArgs& first, const AttentionArgs& second,
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

void check_same_bits_twice(const Attention& attention) {
  AttentionCase c{"", 2, 130, 130, 4, attention.abilities().gqa ? 2 : 4, 16, attention_args(true)};
  c.args.scale = 0.25;
  const AttentionInputs x = attention_inputs(c, at::kFloat);
  const AttentionResult a = run_attention(attention, x.q, x.k, x.v, x.dout, c.args);
  for (int i = 0; i < 3; ++i) {
    const AttentionResult b = run_attention(attention, x.q, x.k, x.v, x.dout, c.args);
    EXPECT_TRUE(equal_tensors(b.out, a.out)) << "out";
    EXPECT_TRUE(equal_tensors(b.lse, a.lse)) << "lse";
    EXPECT_TRUE(equal_tensors(b.dq, a.dq)) << "dq";
    EXPECT_TRUE(equal_tensors(b.dk, a.dk)) << "dk";
    EXPECT_TRUE(equal_tensors(b.dv, a.dv)) << "dv";
  }
}

void check_attend_is_differentiable(const Attention& attention) {
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

// Where dropout is declared: its expected value, the gradient of its own mask, and numbers that are those of the key.
void check_dropout(const Attention& attention) {
  if (!attention.abilities().dropout) return;
  AttentionArgs args = attention_args(true);
  args.scale = 0.5, args.dropout = 0.3, args.key = {7, 3, hash_name("block.0.attn"), 0, {}};
  check_gradient_by_differences(attention, args);

  // Equal keys and values 1: out is the sum of the kept probabilities over 1 - p, with mean 1.
  const at::Tensor ones = at::ones({8, 64, 4, 2}, at::kFloat);
  AttentionArgs plain = attention_args(true);
  plain.scale = 0.5;
  const AttentionState dropped = attention.forward(ones, ones, ones, args);
  EXPECT_TRUE(equal_tensors(dropped.lse, attention.forward(ones, ones, ones, plain).lse)) << "lse is that of all keys";
  EXPECT_FALSE(at::allclose(dropped.out, ones)) << "nothing was dropped";
  // A row of n keys has the variance 0.43 / n. The mean of 8 * 4 * 64 rows: a standard deviation of 0.004.
  EXPECT_NEAR(dropped.out.mean().item<double>(), 1, 0.02) << "mean of what was kept over 1 - p";

  // Two rows of a batch of four draw what they draw alone.
  const AttentionInputs x = attention_inputs({"", 4, 6, 6, 2, 2, 4, {}}, at::kFloat);
  const auto half = [](const at::Tensor& t) { return t.narrow(0, 2, 2); };
  const AttentionResult all = run_attention(attention, x.q, x.k, x.v, x.dout, args);
  args.key.first_sample = 2;
  const AttentionResult part = run_attention(attention, half(x.q), half(x.k), half(x.v), half(x.dout), args);
  expect_close(part.out, half(all.out), 1e-6, "out of rows 2 and 3");
  expect_close(part.dq, half(all.dq), 1e-6, "dq of rows 2 and 3");
  args.key.step = 4;
  EXPECT_FALSE(at::allclose(attention.forward(half(x.q), half(x.k), half(x.v), args).out, part.out))
      << "another step draws the same numbers";
}

void check_arguments(const Attention& attention, const std::string& name) {
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
  expect(refusal(q, k, k, [](AttentionArgs& a) { a.softcap = -1; }), "softcap must not be negative");
}

// Keys in two blocks of several kinds.
void check_all_merged_blocks(const Attention& attention) {
  AttentionArgs full = attention_args(false), causal = attention_args(true), later = attention_args(true, 0, -4);
  full.scale = causal.scale = later.scale = 0.3;
  check_merged_blocks(attention, full, full, full);
  const AttentionAbilities can = attention.abilities();
  if (can.q_offset) check_merged_blocks(attention, causal, later, causal);
  if (can.q_offset && can.window) {
    causal.window = later.window = 5;
    check_merged_blocks(attention, causal, later, causal);
  }
  if (can.q_offset && can.softcap) {
    causal.softcap = later.softcap = 1;
    check_merged_blocks(attention, causal, later, causal);
  }
}

using AttentionCheck = std::function<void(const Attention&, const std::string& name)>;
const std::vector<std::pair<std::string, AttentionCheck>>& attention_checks() {
  static const std::vector<std::pair<std::string, AttentionCheck>> list = {
      {"computes_the_formula_and_refuses_what_it_does_not_declare", check_against_reference},
      {"gradient_is_the_slope",
       [](const Attention& attention, const std::string&) {
         check_gradient_by_differences(attention, attention_args(true));
         check_gradient_by_differences(attention, attention_args(false));
         if (attention.abilities().softcap)
           check_gradient_by_differences(attention, attention_args(true, 0, 0, {}, 0.8));
       }},
      {"blocks_of_keys_can_be_merged",
       [](const Attention& attention, const std::string&) { check_all_merged_blocks(attention); }},
      {"gives_the_same_bits_twice",
       [](const Attention& attention, const std::string&) { check_same_bits_twice(attention); }},
      {"works_under_autograd",
       [](const Attention& attention, const std::string&) { check_attend_is_differentiable(attention); }},
      {"drops_by_its_key", [](const Attention& attention, const std::string&) { check_dropout(attention); }},
      {"refuses_wrong_arguments_by_name", check_arguments},
  };
  return list;
}

}  // namespace

Suite attention_suite() {
  Suite suite;
  for (const auto& [name, check] : attention_checks())
    suite.push_back({name, [check = check](const Subject& subject) {
                       const Host host;
                       const auto attention = installed_plugins().make<Attention>(Attention::kKind, subject.name,
                                                                                  subject.options, host.services);
                       check(*attention, concat("attention/", subject.name));
                     }});
  return suite;
}

void run_attention_suite(const Attention& attention, const std::string& name) {
  for (const auto& [what, check] : attention_checks()) {
    SCOPED_TRACE(what);
    check(attention, name);
  }
}

}  // namespace drivetrain::test
