// context_parallel/ulysses: who gets which heads, and its refusals. That attention over ranks is attention over the
// whole is the suite's to show.
#include <gtest/gtest.h>

#include <drivetrain/context_parallel.h>
#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>

#include "heads.h"
#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
using ulysses::HeadShare;
using ulysses::rows_of_part;
using ulysses::share_heads;

std::unique_ptr<Plugin> make(const Host& host, int64_t size) {
  return make_plugin<ContextParallel>(host, "ulysses", concat("{\"size\": ", size, "}"));
}

struct Planned {
  int64_t heads = 12, groups = 12, length = 1024, ranks = 2, size = 2;
  int64_t tensor_ranks = 1;  // that another plugin shares layers over
  bool behind = false;       // one that takes whole positions away

  PlanRecord context() const {
    const Host host;
    ModelFacts model;
    model.num_layers = 3, model.num_attention_heads = heads, model.num_query_groups = groups, model.head_dim = 8;
    RunFacts run;
    run.world_size = ranks, run.micro_batch_size = 2, run.accumulation = 4;
    if (length > 0) run.seq_length = length;
    run.heads_per_rank = heads / tensor_ranks, run.groups_per_rank = groups / tensor_ranks;
    PlanRecord ctx(model, run);
    ctx.set_plugin("context_parallel/other");
    if (behind) ctx.take_away(PlanContext::kWholePositions, "its attention sees blocks");
    ctx.set_plugin("context_parallel/ulysses");
    make(host, size)->plan(ctx);
    return ctx;
  }
  std::string refusal() const {
    const PlanRecord ctx = context();
    return ctx.refusals().empty() ? "" : ctx.refusals()[0].text;
  }
};

TEST(UlyssesHeads, every_query_head_is_on_one_rank_with_its_key_head) {
  for (int64_t G = 1; G <= 9; ++G)
    for (int64_t R = 1; R <= 5; ++R)
      for (int64_t ranks = 1; ranks <= G * R; ++ranks) {
        const std::vector<HeadShare> shares = share_heads(G * R, G, ranks);
        ASSERT_EQ(static_cast<int64_t>(shares.size()), ranks);
        int64_t next = 0, most = 0, least = G * R;
        for (const HeadShare& share : shares) {
          SCOPED_TRACE(concat(G * R, " heads, ", G, " key heads, ", ranks, " ranks, head ", next));
          EXPECT_EQ(share.query.first, next);
          ASSERT_GT(share.query.count, 0);
          ASSERT_EQ(share.query.count % share.key.count, 0);
          const int64_t per_key = share.query.count / share.key.count;
          for (int64_t h = 0; h < share.query.count; ++h)
            EXPECT_EQ(share.key.first + h / per_key, (share.query.first + h) / R);
          next += share.query.count;
          most = std::max(most, share.query.count), least = std::min(least, share.query.count);
        }
        EXPECT_EQ(next, G * R);
        if (G * R % ranks == 0 && (G % ranks == 0 || ranks % G == 0)) {
          EXPECT_EQ(most, least);
        }
      }
}

TEST(UlyssesHeads, fewer_heads_than_ranks_are_refused_with_both_numbers) {
  EXPECT_EQ(error_of([] { share_heads(3, 1, 4); }),
            "context_parallel/ulysses: 3 query heads cannot be divided among 4 ranks, each of which needs one; set "
            "size to 3 or "
            "less, or use context_parallel/ring");
}

TEST(UlyssesHeads, a_part_of_rows_that_are_a_part_themselves) {
  using Rows = std::vector<RowRange>;
  EXPECT_EQ(rows_of_part({}, {2, 3}), (Rows{{2, 3}}));
  EXPECT_EQ(rows_of_part({{8, 4}}, {1, 2}), (Rows{{9, 2}}));
  EXPECT_EQ(rows_of_part({{0, 2}, {10, 3}, {20, 1}}, {1, 3}), (Rows{{1, 1}, {10, 2}}));
  EXPECT_EQ(rows_of_part({{0, 2}, {10, 3}, {20, 1}}, {5, 1}), (Rows{{20, 1}}));
}

TEST(UlyssesPlan, claims_an_axis_beside_the_heads_and_says_what_it_sends) {
  const PlanRecord ctx = Planned().context();
  EXPECT_TRUE(ctx.refusals().empty());
  ASSERT_EQ(ctx.claims().size(), 1u);
  EXPECT_EQ(ctx.claims()[0].axis, "sp");
  EXPECT_EQ(ctx.claims()[0].size, 2);
  EXPECT_TRUE(ctx.claims()[0].joins_gradients());
  ASSERT_EQ(ctx.traffics().size(), 1u);
  // Half of q, k, v and dout goes out, half of out, dq, dk and dv comes back: 8 tensors of 2 x 512 x 12 x 8 values, 3
  // layers, 4 micro-batches, 4 bytes.
  EXPECT_EQ(ctx.traffics()[0].bytes, 8 / 2.0 * (2 * 512 * 12 * 8) * 3 * 4 * 4);
  EXPECT_TRUE(ctx.costs().empty());
}

TEST(UlyssesPlan, heads_that_other_ranks_leave_too_few_of_are_refused_with_all_numbers) {
  const std::string refusal = Planned{.ranks = 16, .size = 4, .tensor_ranks = 4}.refusal();
  EXPECT_NE(refusal.find("3 of 12 query heads on a rank"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("set size to 3 or less"), std::string::npos) << refusal;
}

TEST(UlyssesPlan, shares_its_heads_with_what_lies_inside) {
  const PlanRecord ctx = Planned().context();
  ASSERT_EQ(ctx.shares().size(), 1u);
  EXPECT_FALSE(ctx.shares()[0].layers);
  EXPECT_EQ(ctx.shares()[0].ranks, 2);
}

TEST(UlyssesPlan, uneven_heads_cost_and_say_how_much) {
  const PlanRecord ctx = Planned{.heads = 3, .groups = 3}.context();
  ASSERT_EQ(ctx.costs().size(), 1u);
  EXPECT_EQ(ctx.costs()[0].text,
            "3 query heads over 2 ranks: the fullest has 2, so attention takes 33 % longer than with equal shares");
}

TEST(UlyssesPlan, one_rank_changes_nothing_and_says_so) {
  const PlanRecord ctx = Planned{.length = 7, .ranks = 1, .size = 1}.context();
  EXPECT_TRUE(ctx.refusals().empty());
  ASSERT_EQ(ctx.no_effects().size(), 1u);
  EXPECT_EQ(ctx.no_effects()[0].text, "size changes nothing: one rank has the whole sequence");
}

TEST(UlyssesPlan, what_does_not_fit_is_refused_with_numbers_and_a_way_out) {
  EXPECT_EQ(Planned{.length = 1023}.refusal(),
            "sequences of 1023 positions cannot be cut into 2 equal pieces; set seq_length to 1022 or 1024");
  EXPECT_EQ(Planned{.length = 0}.refusal(), "") << "it is not known in the first round";
  EXPECT_EQ((Planned{.heads = 2, .groups = 1, .ranks = 4, .size = 4}.refusal()),
            "2 query heads cannot be divided among 4 ranks, each of which needs one; set size to 2 or less, or use "
            "context_parallel/ring");
}

TEST(UlyssesPlan, needs_an_attention_of_whole_positions_around_it) {
  for (const bool behind : {false, true}) {
    const PlanRecord ctx = Planned{.behind = behind}.context();
    ASSERT_EQ(ctx.needs().at(0).ability, PlanContext::kWholePositions);
    EXPECT_EQ(ctx.needs()[0].taken_by, behind ? "context_parallel/other" : "");
  }
}

TEST(UlyssesPlan, a_size_is_needed_and_at_least_one) {
  const Host host;
  EXPECT_NE(error_of([&] { make_plugin<ContextParallel>(host, "ulysses", "{}"); }).find("size"), std::string::npos);
  EXPECT_NE(error_of([&] { make(host, 0); }).find("size"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
