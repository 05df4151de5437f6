// expert_parallel/all_to_all: what it plans and refuses, and the order in which rows arrive. That ranks together
// compute what one does is the suite's to show.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/error.h>
#include <drivetrain/plan_record.h>

#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>

#include "exchange.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

using all_to_all::Exchange;
using all_to_all::Splits;

struct Planned {
  std::string options = R"({"size": 4})";
  int64_t experts = 8;
  bool training = true;
  int64_t rank_positions = 0;

  PlanRecord context() const {
    const Host host;
    ModelFacts model;
    model.num_layers = 4, model.hidden_size = 10;
    model.mixture.experts = experts, model.mixture.chosen = 2, model.mixture.layers = 3;
    RunFacts run;
    run.world_size = 8, run.micro_batch_size = 2, run.accumulation = 5, run.seq_length = 16, run.training = training;
    run.position_ranks = 2, run.rank_layers = 2;
    if (rank_positions > 0) run.rank_positions = rank_positions;
    PlanRecord ctx(model, run);
    ctx.set_plugin("expert_parallel/all_to_all");
    make_plugin<ExpertParallel>(host, "all_to_all", options)->plan(ctx);
    return ctx;
  }
  std::string refusals() const {
    const PlanRecord ctx = context();
    std::string text;
    for (const auto& refusal : ctx.refusals()) text += refusal.text + "\n";
    return text;
  }
};

TEST(AllToAllPlan, claims_an_axis_of_ranks_with_other_rows_and_says_what_travels) {
  const PlanRecord ctx = Planned().context();
  EXPECT_TRUE(ctx.refusals().empty());
  ASSERT_EQ(ctx.claims().size(), 1u);
  EXPECT_EQ(ctx.claims()[0].axis, "ep");
  EXPECT_EQ(ctx.claims()[0].size, 4);
  EXPECT_EQ(ctx.claims()[0].reads, PlanContext::Reads::other_rows);
  EXPECT_LT(ctx.claims()[0].place, PlanContext::kDataPlace);
  EXPECT_TRUE(ctx.capturables().empty()) << "the host reads counts";
  // 2 rows of 8 positions, 2 choices each: 32 rows of 10 values of 4 bytes. Three quarters of them leave the rank,
  // there and back, forward and backward, in half of the 3 layers, for 5 micro-batches.
  const double rows = 32 * 10 * 4;
  ASSERT_EQ(ctx.traffics().size(), 1u);
  EXPECT_EQ(ctx.traffics()[0].bytes, rows * 3 / 4 * 4 * 1.5 * 5);
  ASSERT_EQ(ctx.memories().size(), 1u);
  EXPECT_EQ(ctx.memories()[0].bytes, 2 * 1.25 * rows);
  EXPECT_EQ(Planned{.training = false}.context().traffics()[0].bytes, rows * 3 / 4 * 2 * 1.5 * 5);
  EXPECT_EQ(Planned{.rank_positions = 4}.context().traffics()[0].bytes, ctx.traffics()[0].bytes / 2)
      << "positions that sequence parallelism cuts are other ranks' tokens";
}

TEST(AllToAllPlan, a_rank_gets_no_more_rows_than_there_are) {
  const double rows = 32 * 10 * 4;
  EXPECT_EQ((Planned{.options = R"({"size": 2, "imbalance_factor": 7})"}.context().memories()[0].bytes), 2 * 2 * rows);
}

TEST(AllToAllPlan, one_rank_is_left_alone) {
  const PlanRecord ctx = Planned{.options = R"({"autoep_size": 1})", .experts = 0}.context();
  EXPECT_TRUE(ctx.claims().empty());
  EXPECT_TRUE(ctx.refusals().empty());
  ASSERT_EQ(ctx.no_effects().size(), 1u);
}

TEST(AllToAllPlan, experts_that_do_not_divide_are_refused_with_sizes_that_do) {
  const std::string text = Planned{.experts = 6}.refusals();
  EXPECT_NE(text.find("size 4 does not divide the model's 6 experts (num_experts). Use a size of 1, 2, 3, 6"),
            std::string::npos)
      << text;
  const std::string none = Planned{.experts = 0}.refusals();
  EXPECT_NE(none.find("the model has no experts; give it some (num_experts"), std::string::npos) << none;
}

TEST(AllToAllPlan, deepspeeds_keys_are_taken_or_refused_with_the_reason) {
  const PlanRecord taken = Planned{.options = R"({"autoep_size": 4, "expert_tensor_parallel_size": 1,
    "comm_backend": "comm", "top_k": "auto", "score_func": "auto", "score_apply": "post", "route_norm": null,
    "route_scale": 1, "routed_scaling_factor": "auto", "num_expert_groups": null, "load_balance_coeff": null})"}
                               .context();
  EXPECT_TRUE(taken.refusals().empty()) << taken.refusals()[0].text;
  EXPECT_TRUE(taken.no_effects().empty()) << taken.no_effects()[0].text;
  EXPECT_TRUE((Planned{.options = R"({"size": 4, "top_k": 2})"}.refusals().empty()));
  const PlanRecord idle =
      Planned{.options = R"({"size": 4, "preset_model": "mixtral", "use_grouped_mm": true, "comm_num_sm": 12})"}
          .context();
  EXPECT_TRUE(idle.refusals().empty());
  EXPECT_EQ(idle.no_effects().size(), 3u);
  for (const auto& [options, words] : std::vector<std::pair<const char*, const char*>>{
           {R"({"size": 4, "expert_tensor_parallel_size": 2})", "expert_tensor_parallel_size 2 is not in this version"},
           {R"({"size": 4, "comm_backend": "deepep"})", "comm_backend \"deepep\" is not in this version"},
           {R"({"size": 4, "top_k": 3})", "top_k 3 is not the model's 2"},
           {R"({"size": 4, "score_func": "sigmoid"})", "the model's \"router\" says it"},
           {R"({"size": 4, "score_apply": "pre"})", "weights multiply the experts' outputs"},
           {R"({"size": 4, "route_scale": 2.5})", "\"routed_scaling_factor\""},
           {R"({"size": 4, "load_balance_coeff": 0.001})", "\"router_bias_update_rate\""}}) {
    const std::string text = Planned{.options = options}.refusals();
    EXPECT_NE(text.find(words), std::string::npos) << options << ": " << text;
  }
}

// Rank r sends c(r, e) rows for expert e, whose values say where they are from.
TEST(AllToAllExchange, rows_arrive_by_expert_then_rank_then_in_their_order_and_return_to_their_places) {
  constexpr int64_t kRanks = 3, kExperts = 6, kHeld = kExperts / kRanks;
  const auto count = [](int64_t rank, int64_t expert) { return (2 * rank + expert) % 4; };
  const auto value = [](int64_t rank, int64_t expert, int64_t i) {
    return static_cast<double>(rank * 100 + expert * 10 + i);
  };
  const auto store = make_memory_store();
  const std::vector<std::string> errors = on_threads(kRanks, [&](int64_t rank) {
    LinesLog log;
    const Services services{
        .log = log, .store = *store, .rank = rank, .world_size = kRanks, .local_rank = rank, .local_size = kRanks};
    const auto communicator =
        installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services);
    const auto ranks = std::make_shared<ExpertRanks>();
    ranks->size = kRanks, ranks->group = communicator->make_group({0, 1, 2}, "ep");
    const Exchange exchange(ranks);

    std::vector<double> sent, wanted;
    at::Tensor counts = at::zeros({kExperts}, at::TensorOptions(at::kLong));
    for (int64_t e = 0; e < kExperts; ++e) {
      counts.mutable_data_ptr<int64_t>()[e] = count(rank, e);
      for (int64_t i = 0; i < count(rank, e); ++i) sent.push_back(value(rank, e, i));
    }
    for (int64_t e = rank * kHeld; e < (rank + 1) * kHeld; ++e)
      for (int64_t r = 0; r < kRanks; ++r)
        for (int64_t i = 0; i < count(r, e); ++i) wanted.push_back(value(r, e, i));
    const auto R = static_cast<int64_t>(sent.size()) + 2;  // two are nobody's
    at::Tensor rows = at::zeros({R, 1}, at::TensorOptions(at::kDouble));
    std::copy(sent.begin(), sent.end(), rows.mutable_data_ptr<double>());
    rows[R - 1].fill_(7), rows[R - 2].fill_(7);

    const Splits splits = exchange.splits(counts);
    const at::Tensor here = exchange.there(rows, splits);
    ASSERT_EQ(here.size(0), static_cast<int64_t>(wanted.size()));
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_EQ(here[static_cast<int64_t>(i)].item<double>(), wanted[i]) << "rank " << rank << ", row " << i;
    const at::Tensor counts_here = exchange.counts_here(splits, rows);
    for (int64_t e = 0; e < kHeld; ++e) {
      int64_t all = 0;
      for (int64_t r = 0; r < kRanks; ++r) all += count(r, rank * kHeld + e);
      EXPECT_EQ(counts_here[e].item<int64_t>(), all);
    }
    rows.narrow(0, R - 2, 2).zero_();
    EXPECT_TRUE(exchange.back(here, splits, R).equal(rows)) << "rank " << rank;
  });
  expect_no_errors(errors);
}

}  // namespace
}  // namespace drivetrain::test
