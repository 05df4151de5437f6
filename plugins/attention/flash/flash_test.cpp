// attention/flash: recorded cases, bfloat16 beside LibTorch's kernels, and its refusals.
#include "conformance/attention/far_keys.h"
#include "conformance/attention/golden.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/plan_record.h>

#include "kernels/product/product.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct FlashAttention : ::testing::Test {
  Host host;
  std::unique_ptr<Attention> attention = make_plugin<Attention>(host, "flash");

  PlanRecord planned(double dropout, bool training, const std::string& dtype = "float32") {
    ModelFacts model;
    model.head_dim = 80, model.num_attention_heads = 8, model.num_query_groups = 2, model.attention_dropout = dropout;
    RunFacts run;
    run.training = training, run.compute_dtype = dtype;
    PlanRecord ctx(model, run);
    attention->plan(ctx);
    return ctx;
  }
};

TEST_F(FlashAttention, matches_every_recorded_case_it_declares) { EXPECT_EQ(run_golden_attention(*attention), 20); }

// LibTorch's forward and backward.
AttentionResult by_libtorch(const AttentionInputs& x, const AttentionArgs& args) {
  const auto heads_first = [](const at::Tensor& t) { return t.transpose(1, 2); };
  const at::Tensor q = heads_first(x.q), k = heads_first(x.k), v = heads_first(x.v);
  const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, args.causal, {}, args.scale);
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      heads_first(x.dout), q, k, v, out, lse, 0.0, args.causal, {}, args.scale);
  return {heads_first(out), lse, heads_first(dq), heads_first(dk), heads_first(dv)};
}

// Root of the mean square of what `found` is away from `wanted`, in parts of its size.
double distance(const at::Tensor& found, const at::Tensor& wanted) {
  return found.to(at::kDouble).sub(wanted).norm().item<double>() / wanted.norm().item<double>();
}

AttentionCase bfloat16_case(bool causal) {
  AttentionCase c{"", 1, 300, 300, 4, 2, 64, attention_args(causal)};
  c.args.scale = 0.125;
  return c;
}

TEST_F(FlashAttention, bfloat16_is_no_further_from_float64_than_libtorchs_kernels) {
  if (kernels::product_unit() == kernels::ProductUnit::none) return;  // LibTorch's are all there is here
  for (const bool causal : {true, false}) {
    const AttentionCase c = bfloat16_case(causal);
    const AttentionInputs x = attention_inputs(c, at::kBFloat16);
    const AttentionResult wanted = attention_reference(x.q, x.k, x.v, x.dout, c.args),
                          ours = run_attention(*attention, x.q, x.k, x.v, x.dout, c.args),
                          theirs = by_libtorch(x, c.args);
    const auto compare = [&](const char* what, at::Tensor AttentionResult::*part) {
      const double our_error = distance(ours.*part, wanted.*part), their_error = distance(theirs.*part, wanted.*part);
      EXPECT_LE(our_error, their_error * 1.02) << what;  // both round; which way is chance
      return our_error / their_error;
    };
    compare("out", &AttentionResult::out);
    compare("lse", &AttentionResult::lse);
    compare("dq", &AttentionResult::dq);
    // Two heads share them: LibTorch rounds each head's part before the sum.
    EXPECT_LT(compare("dk", &AttentionResult::dk), 0.7);
    EXPECT_LT(compare("dv", &AttentionResult::dv), 0.7);
  }
}

struct Threads {
  const int before = at::get_num_threads();
  ~Threads() { at::set_num_threads(before); }
};

TEST_F(FlashAttention, bfloat16_has_the_same_bits_on_any_number_of_threads) {
  const Threads restored;
  const AttentionCase c = bfloat16_case(true);
  const AttentionInputs x = attention_inputs(c, at::kBFloat16);
  std::optional<AttentionResult> first;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const AttentionResult r = run_attention(*attention, x.q, x.k, x.v, x.dout, c.args);
    if (!first) first = r;
    EXPECT_TRUE(r.out.equal(first->out) && r.lse.equal(first->lse)) << threads;
    EXPECT_TRUE(r.dq.equal(first->dq) && r.dk.equal(first->dk) && r.dv.equal(first->dv)) << threads;
  }
}

TEST_F(FlashAttention, refuses_dropout_in_training_and_names_the_way_out) {
  const PlanRecord ctx = planned(0.1, true);
  ASSERT_EQ(ctx.refusals().size(), 1u);
  EXPECT_EQ(ctx.refusals()[0].text, "attention_dropout 0.1 is not supported (0 only); use attention/standard");
  EXPECT_TRUE(planned(0.1, false).refusals().empty());
  EXPECT_TRUE(planned(0, true).refusals().empty());
}

TEST_F(FlashAttention, refuses_a_dtype_it_does_not_know) {
  const PlanRecord ctx = planned(0, true, "float8");
  ASSERT_EQ(ctx.refusals().size(), 1u);
  EXPECT_NE(ctx.refusals()[0].text.find("dtype float8 is not supported (float16, float32, float64, bfloat16)"),
            std::string::npos);
}

TEST_F(FlashAttention, its_part_of_a_step_may_be_recorded) { EXPECT_EQ(planned(0, true).capturables().size(), 1u); }

TEST_F(FlashAttention, a_backend_of_cuda_is_refused_on_the_cpu_and_an_unknown_one_everywhere) {
  EXPECT_TRUE(planned(0, true).refusals().empty());
  attention = make_plugin<Attention>(host, "flash", R"({"backend": "cudnn"})");
  const PlanRecord ctx = planned(0, true);
  ASSERT_EQ(ctx.refusals().size(), 1u);
  EXPECT_EQ(ctx.refusals()[0].text, "backend \"cudnn\" needs \"device\": \"cuda\"; leave it out");
  EXPECT_NE(
      error_of([&] { make_plugin<Attention>(host, "flash", R"({"backend": "math"})"); }).find("backend is \"math\""),
      std::string::npos);
}

TEST_F(FlashAttention, on_cuda_it_plans_for_16_bits_and_heads_of_a_multiple_of_8) {
  host.services.device = at::Device(at::kCUDA, 0);
  EXPECT_TRUE(planned(0, true, "bfloat16").refusals().empty());
  const PlanRecord wide = planned(0, true, "float32");
  ASSERT_EQ(wide.refusals().size(), 1u);
  EXPECT_EQ(wide.refusals()[0].text, "dtype float32 is not supported (float16, bfloat16); use attention/standard");
  EXPECT_TRUE(attention->abilities().head_sizes.contains(80));
  for (const int64_t size : {4, 12, 264}) EXPECT_FALSE(attention->abilities().head_sizes.contains(size)) << size;
  EXPECT_FALSE(attention->abilities().deterministic);
}

TEST_F(FlashAttention, offers_what_wrappers_need) {
  const PlanRecord ctx = planned(0, true);
  const auto offers = [&](const std::string& ability) {
    for (const auto& offer : ctx.offers())
      if (offer.text == ability) return true;
    return false;
  };
  EXPECT_TRUE(offers("attention.returns_lse"));
  EXPECT_TRUE(offers("attention.varlen"));
}

TEST_F(FlashAttention, refuses_arguments_beyond_the_kernel) {
  const at::Tensor x = at::zeros({1, 8, 2, 4});
  const auto refusal = [&](auto change) {
    AttentionArgs args;
    args.scale = 1;
    change(args);
    return error_of([&] { attention->forward(x, x, x, args); });
  };
  EXPECT_EQ(refusal([](AttentionArgs& a) { a.dropout = 0.1; }),
            "attention/flash: dropout 0.1 is not supported (0 only); use attention/standard");
  host.services.device = at::Device(at::kCUDA, 0);
  const at::Tensor half = at::zeros({1, 8, 2, 8}, at::kHalf);
  const auto on_cuda = [&](auto change) {
    AttentionArgs args;
    args.scale = 1;
    change(args);
    return error_of([&] { attention->forward(half, half, half, args); });
  };
  EXPECT_EQ(on_cuda([](AttentionArgs& a) { a.window = 3; }),
            "attention/flash: window 3 is not supported (0 only); use attention/standard");
  EXPECT_EQ(on_cuda([](AttentionArgs& a) { a.softcap = 30; }),
            "attention/flash: softcap 30 is not supported (0 only); use attention/standard");
  EXPECT_EQ(on_cuda([](AttentionArgs& a) { a.q_offset = 2; }),
            "attention/flash: q_offset 2 is not supported; use attention/standard");
}

TEST_F(FlashAttention, keys_far_outside_of_a_window_are_not_read) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) expect_far_keys_unread(*attention, type);
}

TEST_F(FlashAttention, a_window_takes_less_memory) {
  AttentionShape shape{1, 4096, 4096, 8, 8, 64};
  shape.softcap = true;
  const auto forward = [&] { return attention->memory(shape).forward.bytes(); };
  const double whole = forward();
  shape.window = 8192;
  EXPECT_EQ(forward(), whole) << "it hides nothing";
  shape.window = 512;
  EXPECT_LT(forward(), whole);
}

}  // namespace
}  // namespace drivetrain
