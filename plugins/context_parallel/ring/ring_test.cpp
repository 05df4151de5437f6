// context_parallel/ring: which positions a rank has, merging, and its refusals. That attention over ranks is attention
// over the whole is the suite's to show.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include <drivetrain/context_parallel.h>
#include <drivetrain/error.h>
#include <drivetrain/plan_record.h>

#include "blocks.h"
#include "merged.h"
#include "support/plugin_under_test.h"
#include "zigzag.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
using ring::Merged;
using ring::work_of_chunks;
using ring::zigzag;

std::unique_ptr<Plugin> make(const Host& host, int64_t size) {
  return make_plugin<ContextParallel>(host, "ring", concat("{\"size\": ", size, "}"));
}

struct Planned {
  int64_t length = 1024, size = 2, heads_ranks = 1;
  double dropout = 0;
  bool training = true;
  int64_t window = 0;
  double full = 0;  // layers without the window for each one with it

  PlanRecord context() const {
    const Host host;
    ModelFacts model;
    model.num_layers = 3, model.num_attention_heads = 12, model.num_query_groups = 4, model.head_dim = 8;
    model.attention_dropout = dropout;
    model.flops_per_token_S = full;
    if (window > 0) model.windowed = {{window, 1}};
    RunFacts run;
    run.world_size = size, run.micro_batch_size = 2, run.accumulation = 4;
    if (length > 0) run.seq_length = length;
    run.position_ranks = size * heads_ranks, run.groups_per_rank = 4;
    run.training = training;
    PlanRecord ctx(model, run);
    ctx.set_plugin("context_parallel/ring");
    make(host, size)->plan(ctx);
    return ctx;
  }
  std::string refusal() const {
    const PlanRecord ctx = context();
    return ctx.refusals().empty() ? "" : ctx.refusals()[0].text;
  }
};

TEST(RingPositions, a_rank_has_a_chunk_and_the_one_as_far_from_the_end) {
  using Rows = std::vector<RowRange>;
  EXPECT_EQ(zigzag({{0, 12}}, 0, 3), (Rows{{0, 2}, {10, 2}}));
  EXPECT_EQ(zigzag({{0, 12}}, 1, 3), (Rows{{2, 2}, {8, 2}}));
  EXPECT_EQ(zigzag({{0, 12}}, 2, 3), (Rows{{4, 4}}));
  EXPECT_EQ(zigzag({{5, 1}, {10, 3}}, 0, 2), (Rows{{5, 1}, {12, 1}}));
  EXPECT_EQ(zigzag({{5, 1}, {10, 3}}, 1, 2), (Rows{{10, 2}}));
  EXPECT_EQ(error_of([] {
              zigzag({{0, 14}}, 0, 2);
            }),
            "context_parallel/ring: 14 positions cannot be cut into 4 equal chunks, two for each of 2 ranks; set "
            "seq_length to a "
            "multiple of 4");
}

// A long document at the front, then short ones: by their places one rank would have nearly all of the work.
TEST(RingPositions, chunks_are_dealt_out_by_the_work_in_their_documents) {
  using Rows = std::vector<RowRange>;
  const std::vector<int64_t> documents = {0, 8, 10, 12, 13, 14, 15, 16};
  EXPECT_EQ(work_of_chunks(documents, 16, 4), (std::vector<int64_t>{10, 26, 6, 4}));
  EXPECT_EQ(zigzag({{0, 16}}, 0, 2, documents), (Rows{{4, 4}, {12, 4}}));
  EXPECT_EQ(zigzag({{0, 16}}, 1, 2, documents), (Rows{{0, 4}, {8, 4}}));
  // Two rows count together; one document a row is the zig-zag order.
  EXPECT_EQ(work_of_chunks({0, 8, 12, 16}, 8, 2), (std::vector<int64_t>{20, 36}));
  EXPECT_EQ(zigzag({{0, 16}}, 1, 2, {0, 16, 32}), zigzag({{0, 16}}, 1, 2));
}

TEST(RingPositions, every_rank_sees_as_many_pairs) {
  for (const int64_t ranks : {2, 3, 8}) {
    const int64_t S = 6 * ranks, total = S * (S + 1) / 2;
    int64_t together = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      int64_t pairs = 0;
      for (const RowRange& range : zigzag({{0, S}}, r, ranks))
        for (int64_t i = 0; i < range.count; ++i) pairs += range.first + i + 1;
      EXPECT_EQ(pairs * ranks, total);
      together += pairs;
    }
    EXPECT_EQ(together, total);
  }
}

TEST(RingMerged, blocks_are_weighed_by_their_scores) {
  // One head of size 1: softmax over scores s_j of values v_j, in two blocks.
  const double a = 0.5, b = -1, x = 3, y = 7;
  Merged merged(at::full({1, 1, 1, 1}, x, at::kDouble), at::full({1, 1, 1}, a, at::kDouble));
  merged.add(at::full({1, 1, 1, 1}, y, at::kDouble), at::full({1, 1, 1}, b, at::kDouble), 0, 0);
  const double sum = std::exp(a) + std::exp(b);
  EXPECT_NEAR(merged.out().item<double>(), (x * std::exp(a) + y * std::exp(b)) / sum, 1e-15);
  EXPECT_NEAR(merged.lse().item<double>(), std::log(sum), 1e-15);
}

TEST(RingMerged, a_query_that_sees_nothing_stays_zero_and_one_that_sees_one_block_keeps_it) {
  const double none = -std::numeric_limits<double>::infinity();
  Merged merged(at::zeros({1, 2, 1, 3}), at::full({1, 1, 2}, none));
  at::Tensor out = at::rand({1, 2, 1, 3}), lse = at::full({1, 1, 2}, none);
  out.narrow(1, 0, 1).zero_();
  lse.narrow(2, 1, 1).fill_(0.25);
  merged.add(out, lse, 0, 0);
  EXPECT_TRUE(at::equal(merged.out(), out));
  EXPECT_TRUE(at::equal(merged.lse(), lse));
}

TEST(RingMerged, sixteen_bits_are_merged_in_float32) {
  const at::Tensor out = at::rand({1, 4, 2, 3}).to(at::kBFloat16), lse = at::zeros({1, 2, 4});
  Merged merged(out, lse.clone());
  merged.add(out.narrow(1, 2, 2), lse.narrow(2, 2, 2), 0, 2);
  EXPECT_EQ(merged.out().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(merged.out(), out.to(at::kFloat), 1e-6));
  EXPECT_TRUE(at::equal(merged.lse().narrow(2, 0, 2), lse.narrow(2, 0, 2)));
  EXPECT_NEAR(merged.lse().select(2, 3).max().item<float>(), std::log(2.0), 1e-6);
}

TEST(RingPlan, claims_its_axis_and_says_what_it_needs_and_sends) {
  const PlanRecord ctx = Planned().context();
  EXPECT_TRUE(ctx.refusals().empty());
  ASSERT_EQ(ctx.claims().size(), 1u);
  EXPECT_EQ(ctx.claims()[0].axis, "cp");
  EXPECT_TRUE(ctx.claims()[0].joins_gradients());
  ASSERT_EQ(ctx.needs().size(), 3u);
  EXPECT_EQ(ctx.needs()[0].ability, "attention.returns_lse");
  EXPECT_EQ(ctx.needs()[1].ability, "attention.non_causal");
  EXPECT_EQ(ctx.needs()[2].ability, "attention.partial_keys");
  // k and v of 2 x 512 x 4 x 8 values, once in forward and once in backward; gradients one hop more than there are
  // others.
  const double kv = 2.0 * 2 * 512 * 4 * 8 * 4, visits = 3 * 4;
  ASSERT_EQ(ctx.traffics().size(), 2u);
  EXPECT_EQ(ctx.traffics()[0].bytes, 2 * kv * visits);
  EXPECT_EQ(ctx.traffics()[1].bytes, kv * visits);
}

// Of four ranks' eight chunks of 128, a window of 100 joins each with the one before it, which for one pair is on the
// same rank: 6 blocks of 99 queries by 99 keys, where without a window there are 24 of 128 by 128, and all 1024 keys
// are sent three times.
TEST(RingPlan, counts_what_a_window_reaches) {
  EXPECT_TRUE(Planned{.size = 4}.context().costs().empty());
  EXPECT_TRUE((Planned{.size = 4, .window = 1024}.context().costs().empty())) << "it is as long as the sequence";
  const PlanRecord ctx = Planned{.size = 4, .window = 100}.context();
  ASSERT_EQ(ctx.needs().size(), 5u);
  EXPECT_EQ(ctx.needs()[3].ability, "attention.window");
  EXPECT_EQ(ctx.needs()[4].ability, "attention.q_offset");
  ASSERT_EQ(ctx.costs().size(), 1u);
  EXPECT_EQ(ctx.costs()[0].text,
            concat("layers with a window of 100 keys compute ", 100 * 6 * 99 * 99 / (24 * 128 * 128),
                   " % of the chunks of other ranks, and send ", 100 * 6 * 99 / (3 * 1024), " % of their keys"));
  // Of each rank, by a mean of 6 * 99 / 4 keys; k and v of 2 x 4 x 8 values, in forward and backward.
  const double kv = 2.0 * 2 * 4 * 8 * 4 * 6 * 99 / 4, visits = 3 * 4;
  ASSERT_EQ(ctx.traffics().size(), 2u);
  EXPECT_DOUBLE_EQ(ctx.traffics()[0].bytes, 2 * kv * visits);
  EXPECT_DOUBLE_EQ(ctx.traffics()[1].bytes, kv * visits);
}

TEST(RingPlan, layers_without_a_window_send_all_that_they_sent) {
  const auto bytes = [](int64_t window, double full) {
    return Planned{.size = 4, .window = window, .full = full}.context().traffics()[0].bytes;
  };
  EXPECT_DOUBLE_EQ(bytes(100, 3), (bytes(100, 0) + 3 * bytes(0, 1)) / 4) << "one layer in four has a window";
}

// Every pair of positions that causal attention with a window has is computed on one rank, once.
TEST(RingBlocks, have_every_pair_of_a_window_once) {
  const int64_t S = 48;
  for (const std::vector<int64_t>& documents : {std::vector<int64_t>{}, {0, 5, 29, 31, 48}, {0, 43, 44, 48}})
    for (const int64_t ranks : {2, 3})
      for (const int64_t window : {1, 4, 9, 20, 47}) {
        const ring::RingShape shape{1, S / ranks, ranks, documents, window};
        std::vector<int64_t> times(S * S, 0);
        const auto together = [&](int64_t i, int64_t j) {
          for (const int64_t end : documents)
            if ((i < end) != (j < end)) return false;
          return true;
        };
        const auto positions = [&](int64_t rank) {
          std::vector<int64_t> list;
          for (const RowRange& range : zigzag({{0, S}}, rank, ranks, documents))
            for (int64_t i = 0; i < range.count; ++i) list.push_back(range.first + i);
          return list;
        };
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const std::vector<int64_t> own = positions(rank);
          for (const ring::OwnChunk& chunk : ring::own_chunks(shape, rank))
            for (int64_t a = 0; a < chunk.columns.count; ++a)
              for (int64_t b = 0; b <= a; ++b) {
                const auto i = own[chunk.columns.first + a], j = own[chunk.columns.first + b];
                bool one = i - j < window;
                for (const int64_t end : chunk.boundaries) one = one && (a < end) == (b < end);
                times[i * S + j] += one ? 1 : 0;
              }
          for (int64_t other = 0; other < ranks; ++other) {
            const std::vector<int64_t> theirs = positions(other);
            for (const ring::Block& block : ring::blocks_between(shape, rank, other))
              for (int64_t a = 0; a < block.queries.count; ++a)
                for (int64_t b = 0; b < block.keys.count; ++b) {
                  const auto i = own[block.queries.first + a], j = theirs[block.keys.first + b];
                  if (block.window > 0) {
                    EXPECT_EQ(a + block.offset - b, i - j);
                  }
                  times[i * S + j] += block.window == 0 || a + block.offset - b < block.window ? 1 : 0;
                }
          }
        }
        for (int64_t i = 0; i < S; ++i)
          for (int64_t j = 0; j < S; ++j)
            ASSERT_EQ(times[i * S + j], j <= i && i - j < window && together(i, j) ? 1 : 0)
                << i << " sees " << j << ", window " << window << ", ranks " << ranks;
      }
}

TEST(RingPlan, one_rank_needs_nothing_and_says_so) {
  const PlanRecord ctx = Planned{.length = 7, .size = 1, .dropout = 0.1}.context();
  EXPECT_TRUE(ctx.refusals().empty());
  EXPECT_TRUE(ctx.needs().empty());
  EXPECT_EQ(ctx.no_effects().size(), 1u);
}

TEST(RingPlan, what_does_not_fit_is_refused_with_numbers_and_a_way_out) {
  EXPECT_EQ(
      Planned{.length = 1026}.refusal(),
      "sequences of 1026 positions cannot be cut into 4 equal chunks, two for each of 2 ranks; set seq_length to a "
      "multiple of 4 such as 1028");
  EXPECT_EQ(Planned{.length = 0}.refusal(), "") << "it is not known in the first round";
  EXPECT_EQ((Planned{.length = 1024, .heads_ranks = 3}.refusal()),
            "sequences of 1024 positions cannot be cut into 4 equal chunks, two for each of 2 ranks, and these by 3 "
            "ranks that share the sequence as well; set seq_length to a multiple of 12 such as 1032");
  EXPECT_EQ(Planned{.dropout = 0.1}.refusal(),
            "attention_dropout 0.1 is not supported (0 only): no rank has all probabilities of a query; use "
            "context_parallel/ulysses");
  EXPECT_EQ((Planned{.dropout = 0.1, .training = false}.refusal()), "");
}

TEST(RingPlan, a_size_is_needed_and_at_least_one) {
  const Host host;
  EXPECT_NE(error_of([&] { make_plugin<ContextParallel>(host, "ring", "{}"); }).find("size"), std::string::npos);
  EXPECT_NE(error_of([&] { make(host, 0); }).find("size"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
