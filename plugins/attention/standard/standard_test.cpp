// attention/standard: recorded cases, and what is its own: dropout.
#include "conformance/attention/far_keys.h"
#include "conformance/attention/golden.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <drivetrain/plan_record.h>

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct StandardAttention : ::testing::Test {
  Host host;
  std::unique_ptr<Attention> attention = make_plugin<Attention>(host, "standard");

  static AttentionArgs with_dropout(double p) {
    AttentionArgs args = attention_args(true);
    args.scale = 0.5, args.dropout = p, args.key = {7, 3, hash_name("block.0.attn"), 0, {}};
    return args;
  }
};

TEST_F(StandardAttention, matches_every_recorded_case) { EXPECT_EQ(run_golden_attention(*attention), 20); }

TEST_F(StandardAttention, dropout_has_the_gradient_of_its_own_mask) {
  check_gradient_by_differences(*attention, with_dropout(0.3));
}

TEST_F(StandardAttention, dropout_keeps_the_expected_part_and_the_lse) {
  // Equal keys and values 1: out is the sum of the kept probabilities over 1 - p, with mean 1.
  const at::Tensor x = at::ones({8, 64, 4, 2}, at::kFloat);
  AttentionArgs args = with_dropout(0.25), plain = with_dropout(0);
  args.causal = plain.causal = false;
  const AttentionState dropped = attention->forward(x, x, x, args), whole = attention->forward(x, x, x, plain);
  EXPECT_TRUE(at::equal(dropped.lse, whole.lse));
  EXPECT_FALSE(at::equal(dropped.out, whole.out));
  // 8 * 64 * 4 * 64 draws: the mean of keep / (1 - p) has a standard deviation of 0.0016.
  EXPECT_NEAR(dropped.out.mean().item<double>(), 1, 0.008);
}

TEST_F(StandardAttention, rows_draw_what_their_samples_draw_in_any_batch) {
  const AttentionInputs x = attention_inputs({"", 4, 6, 6, 2, 2, 4, {}}, at::kFloat);
  AttentionArgs args = with_dropout(0.5);
  const AttentionResult all = run_attention(*attention, x.q, x.k, x.v, x.dout, args);
  args.key.first_sample = 2;
  const auto half = [](const at::Tensor& t) { return t.narrow(0, 2, 2); };
  const AttentionResult part = run_attention(*attention, half(x.q), half(x.k), half(x.v), half(x.dout), args);
  expect_close(part.out, half(all.out), 1e-6, "out");
  expect_close(part.dq, half(all.dq), 1e-6, "dq");
  args.key.step = 4;
  EXPECT_FALSE(at::allclose(attention->forward(half(x.q), half(x.k), half(x.v), args).out, part.out));
}

TEST_F(StandardAttention, keys_far_outside_of_a_window_are_not_read) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) expect_far_keys_unread(*attention, type);
}

TEST_F(StandardAttention, a_window_takes_the_memory_of_its_blocks) {
  AttentionShape shape{1, 4096, 4096, 8, 8, 64};
  const AttentionMemory whole = attention->memory(shape);
  shape.window = 512;
  const AttentionMemory part = attention->memory(shape);
  EXPECT_LT(part.forward.bytes(), 0.1 * whole.forward.bytes());
  EXPECT_LT(part.backward.bytes(), 0.1 * whole.backward.bytes());
}

// Numbers are drawn for whole rows, so that the window changes none of them.
TEST_F(StandardAttention, dropout_under_a_window_has_the_gradient_of_its_own_mask) {
  AttentionArgs args = with_dropout(0.3);
  args.window = 3;
  check_gradient_by_differences(*attention, args);
}

TEST_F(StandardAttention, a_plan_that_drops_everything_is_refused) {
  ModelFacts model;
  model.attention_dropout = 1;
  PlanRecord ctx(model, RunFacts{});
  attention->plan(ctx);
  ASSERT_EQ(ctx.refusals().size(), 1u);
  EXPECT_EQ(ctx.refusals()[0].text, "attention_dropout is 1; it must be below 1");
}

TEST_F(StandardAttention, dropout_with_an_offset_is_refused) {
  AttentionArgs args = with_dropout(0.5);
  args.q_offset = 2;
  const at::Tensor x = at::ones({1, 4, 1, 2});
  EXPECT_NE(error_of([&] { attention->forward(x, x, x, args); }).find("dropout 0.5 with q_offset 2 is not supported"),
            std::string::npos);
}

TEST_F(StandardAttention, wrong_segments_are_refused) {
  const at::Tensor x = at::ones({1, 4, 1, 2});
  AttentionArgs args = attention_args(true);
  args.scale = 1;
  const auto refused = [&](std::vector<int64_t> ends, const at::Tensor& t, const char* part) {
    args.varlen.cu_seqlens = std::move(ends);
    const std::string found = error_of([&] { attention->forward(t, t, t, args); });
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  refused({0, 2, 3}, x, "cu_seqlens must ascend from 0 to 4; found 0 to 3");
  refused({0, 2, 2, 4}, x, "found 2 behind 2");
  refused({0, 3, 5, 8}, x.expand({2, 4, 1, 2}), "the begin of every row; 4 is missing between 3 and 5");
}

}  // namespace
}  // namespace drivetrain
