// What the units say of memory, against the closed formulas of the literature.
//
// Source: Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models", section 4: a layer
// keeps s b h (34 + 5 a s / h) bytes in 16 bits. We keep neither masks of dropout (drawn again) nor scores and their
// softmax (computed again from the sum of exponentials), so 2 of the 34 and the whole second term fall away.
#include <gtest/gtest.h>

#include <drivetrain/planned_memory.h>

#include "unit_memory.h"

namespace drivetrain::test {
namespace {

using namespace drivetrain::gpt;

constexpr double s = 2048, b = 4, h = 12288, a = 96;  // GPT-3's layer

Shape gpt3() {
  Shape shape;
  shape.layers = 96, shape.hidden = 12288, shape.heads = shape.groups = 96, shape.head_dim = 128, shape.ffn = 4 * 12288;
  shape.vocab = 51200, shape.positions = 2048;
  return shape;
}

VisitShape visit(int64_t tensor_ranks, bool cuts_positions) {
  VisitShape v;
  v.rows = b, v.tokens = s * b, v.tensor_ranks = tensor_ranks;
  v.rank_tokens = cuts_positions ? v.tokens / static_cast<double>(tensor_ranks) : v.tokens;
  v.dtype = at::kBFloat16, v.grad = at::kFloat, v.on_cpu = false;
  return v;
}

// As an attention by blocks has it: no scores in memory.
AttentionMemory blockwise(const VisitShape& v) {
  const AttentionShape shape = attention_shape(gpt3(), v);
  AttentionMemory memory;
  memory.kept.add(shape.query_bytes(), 2).add(shape.key_bytes(), 2).add(shape.lse_bytes());
  memory.backward.add(shape.query_bytes()).add(shape.key_bytes(), 2);
  return memory;
}

double kept(const VisitShape& v, const BlockKeeps& keeps = {}) {
  return block_memory(gpt3(), v, keeps, blockwise(v)).kept.bytes();
}

TEST(GptMemory, of_a_layer_is_that_of_the_literature_without_masks_and_scores) {
  const double few = 0.02;  // statistics of norms, and one number per query
  EXPECT_NEAR(kept(visit(1, false)) / (s * b * h), 32, 32 * few);
  // Tensor parallelism: 10 + 24 / t; with sequence parallelism 34 / t.
  EXPECT_NEAR(kept(visit(8, false)) / (s * b * h), 8 + 24. / 8, 11 * few);
  EXPECT_NEAR(kept(visit(8, true)) / (s * b * h), 32. / 8, 4 * few);
}

TEST(GptMemory, of_a_layer_that_is_recomputed_is_its_input) {
  const VisitShape v = visit(1, false);
  EXPECT_EQ(block_memory(gpt3(), v, {}, blockwise(v)).inputs.bytes(), 2 * s * b * h);
}

// Regions free what they hold: both norms' outputs, attention's result, the activation's.
TEST(GptMemory, of_regions_that_are_recomputed_falls_by_what_they_hold) {
  const VisitShape v = visit(1, false);
  const double all = kept(v), few = 0.3;
  EXPECT_NEAR((all - kept(v, {.norm = Keep::input})) / (s * b * h), 4, few);
  EXPECT_NEAR((all - kept(v, {.core = Keep::input})) / (s * b * h), 2, few);
  EXPECT_NEAR((all - kept(v, {.act = Keep::input})) / (s * b * h), 8, few);
}

// Experts keep what their activation reads, and, where they get rows, those that they read and return.
TEST(GptMemory, of_a_mixture_grows_with_the_rows_of_its_experts) {
  Shape shape = gpt3();
  shape.activation = "swiglu", shape.mixture.experts = 16, shape.mixture.chosen = 4, shape.mixture.ffn = 2048;
  const VisitShape v = visit(1, false);
  const auto kept_of = [&](double rows) {
    return block_memory(shape, v, {.expert_rows = rows, .kept_rows = 2 * rows}, blockwise(v)).kept.bytes();
  };
  const double rows = 4 * s * b;
  EXPECT_EQ(kept_of(2 * rows) - kept_of(rows), rows * 2 * (2 * h + 2 * 2048));
  const auto kept_of_tokens = [&](double count) {
    return block_memory(shape, v, {.expert_rows = count}, blockwise(v)).kept.bytes();
  };
  EXPECT_EQ(kept_of_tokens(2 * rows) - kept_of_tokens(rows), rows * 2 * 2 * 2048);
  // Without a row it is a block without an MLP, with the scores and choices of the router.
  EXPECT_NEAR(kept_of(0), kept(v) - s * b * 2 * 2 * 4 * h, s * b * (16 * 4 + 4 * 8 * 5));
}

// 5 a s / h in bytes are 2.5 a s^2 b elements of 16 bits: what one pass has of scores at a time shows the size.
TEST(GptMemory, of_a_block_contains_that_of_its_attention_in_backward) {
  const VisitShape v = visit(1, false);
  AttentionMemory scores = blockwise(v);
  scores.backward.add(4 * a * s * s * b, 2);
  const double without = block_memory(gpt3(), v, {}, blockwise(v)).working.bytes(),
               with = block_memory(gpt3(), v, {}, scores).working.bytes();
  EXPECT_GT(with, 8 * a * s * s * b - 40 * s * b * h);
  EXPECT_LT(without, 40 * s * b * h);
}

TEST(GptMemory, of_the_output_layer_is_that_of_a_chunk_of_logits) {
  const VisitShape v = visit(1, false);
  const VisitMemory head = head_memory(gpt3(), v);
  const double chunk = 512. * 1024 * 1024, residual = 2 * s * b * h;
  EXPECT_NEAR(head.kept.bytes(), 2 * residual, 0.01 * residual);
  EXPECT_GT(head.working.bytes(), 0.9 * chunk + residual);
  EXPECT_LT(head.working.bytes(), 1.1 * chunk + 3 * residual);
}

}  // namespace
}  // namespace drivetrain::test
