// expert_parallel/all_to_all: what it plans and refuses, and the order in which tokens arrive. That ranks together
// compute what one does is the suite's to show.
#include <gtest/gtest.h>

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
using all_to_all::Travel;
using all_to_all::Trip;
using all_to_all::wait_for;

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
  // 2 rows of 8 positions: 16 tokens of 10 values of 4 bytes. Both choices are of one rank for one pair of experts in
  // seven, so a token goes to 13 / 7 of the ranks. Three quarters of them are others: there and back, forward and
  // backward, in half of the 3 layers, for 5 micro-batches; with 2 choices of 8 and weights of 4 bytes, and the
  // gradients of these.
  const double tokens = 16. * 13 / 7, values = 10 * 4;
  ASSERT_EQ(ctx.traffics().size(), 1u);
  EXPECT_NEAR(ctx.traffics()[0].bytes, tokens * 3 / 4 * 1.5 * 5 * (4 * values + 2 * (4 + 2 * 4)), 1e-9);
  ASSERT_EQ(ctx.memories().size(), 1u);
  EXPECT_NEAR(ctx.memories()[0].bytes, 2 * 1.25 * tokens * values, 1e-9);
  EXPECT_NEAR(Planned{.training = false}.context().traffics()[0].bytes,
              tokens * 3 / 4 * 1.5 * 5 * (2 * values + 2 * (4 + 4)), 1e-9);
  EXPECT_EQ(Planned{.rank_positions = 4}.context().traffics()[0].bytes, ctx.traffics()[0].bytes / 2)
      << "positions that sequence parallelism cuts are other ranks' tokens";
}

TEST(AllToAllPlan, a_rank_gets_no_more_rows_than_there_are) {
  // Of two ranks a token goes to both but for 12 of the 28 pairs of experts.
  EXPECT_NEAR((Planned{.options = R"({"size": 2, "imbalance_factor": 7})"}.context().memories()[0].bytes),
              2 * 2 * 16 * (2 - 12. / 28) * 10 * 4, 1e-9);
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

// Of 6 experts on 3 ranks: what token t of rank r chooses, one of them nobody's.
std::vector<int64_t> choices_of(int64_t rank, int64_t token) {
  return {(2 * rank + token) % 6, (rank + 2 * token) % 7 == 0 ? -1 : (2 * rank + token + 1 + token % 5) % 6};
}

TEST(AllToAllExchange, a_token_goes_once_to_each_of_its_ranks_and_their_sums_return_to_its_place) {
  constexpr int64_t kRanks = 3, kHeld = 2, kTokens = 9;
  const auto goes_to = [](int64_t rank, int64_t token, int64_t to) {
    for (const int64_t expert : choices_of(rank, token))
      if (expert >= 0 && expert / kHeld == to) return true;
    return false;
  };
  const auto value = [](int64_t rank, int64_t token) { return static_cast<double>(100 * rank + token); };
  const auto store = make_memory_store();
  const std::vector<std::string> errors = on_threads(kRanks, [&](int64_t rank) {
    LinesLog log;
    const Services services{
        .log = log, .store = *store, .rank = rank, .world_size = kRanks, .local_rank = rank, .local_size = kRanks};
    const auto communicator =
        installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services);
    const auto ranks = std::make_shared<ExpertRanks>();
    ranks->size = kRanks, ranks->experts = kHeld, ranks->chosen = 2;
    ranks->group = communicator->make_group({0, 1, 2}, "ep");
    const Exchange exchange(ranks);

    at::Tensor experts = at::zeros({kTokens, 2}, at::kLong), tokens = at::zeros({kTokens, 1}, at::kDouble);
    std::vector<double> wanted_here, wanted_home;
    int64_t used = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      tokens[t].fill_(value(rank, t));
      for (int64_t k = 0; k < 2; ++k) experts[t][k].fill_(choices_of(rank, t)[size_t(k)]);
      double home = 0;
      for (int64_t to = 0; to < kRanks; ++to)
        if (goes_to(rank, t, to)) home += value(rank, t) * static_cast<double>(to + 1);
      wanted_home.push_back(home);
    }
    for (int64_t from = 0; from < kRanks; ++from)
      for (int64_t t = 0; t < kTokens; ++t) {
        if (goes_to(from, t, rank)) wanted_here.push_back(value(from, t));
        for (const int64_t expert : choices_of(from, t)) used += expert >= 0 && expert / kHeld == rank ? 1 : 0;
      }

    const Trip trip = exchange.trip(experts);
    EXPECT_EQ(trip.used, used);
    ASSERT_EQ(trip.rows_received(), static_cast<int64_t>(wanted_here.size()));
    Travel coming = exchange.there(tokens, trip), ids = exchange.there(experts, trip);
    const at::Tensor here = wait_for(coming), own = exchange.own(wait_for(ids));
    for (size_t i = 0; i < wanted_here.size(); ++i)
      EXPECT_EQ(here[static_cast<int64_t>(i)].item<double>(), wanted_here[i]) << "rank " << rank << ", row " << i;
    EXPECT_EQ(own.ge(0).sum().item<int64_t>(), used);
    EXPECT_LT(own.max().item<int64_t>(), kHeld);
    Travel going = exchange.back(here * static_cast<double>(rank + 1), trip);
    const at::Tensor home = exchange.sum_home(wait_for(going), trip);
    for (size_t t = 0; t < wanted_home.size(); ++t)
      EXPECT_EQ(home[static_cast<int64_t>(t)].item<double>(), wanted_home[t]) << "rank " << rank << ", token " << t;
  });
  expect_no_errors(errors);
}

TEST(AllToAllExchange, all_tokens_to_one_rank_are_told_once) {
  LinesLog log;
  all_to_all::OneSided one_sided(&log);
  Trip trip;
  for (const std::vector<int64_t>& sent : {std::vector<int64_t>{40, 60}, {0, 63}, {0, 0}, {0, 64}, {64, 0}})
    trip.sent = sent, one_sided.see(trip);
  ASSERT_EQ(log.warnings.size(), 1u);
  EXPECT_NE(log.warnings[0].find("all 64 tokens of a micro-batch of rank 0 chose experts of rank 1 of 2"),
            std::string::npos)
      << log.warnings[0];
  EXPECT_NE(log.warnings[0].find("router_aux_loss_coef"), std::string::npos);
}

TEST(AllToAllExchange, a_choice_that_no_rank_has_is_refused) {
  const auto ranks = std::make_shared<ExpertRanks>();
  ranks->size = 2, ranks->experts = 2;
  at::Tensor experts = at::zeros({3, 2}, at::kLong);
  experts[1][0].fill_(-1), experts[2][1].fill_(4);
  try {
    (void)Exchange(ranks).trip(experts);
    ADD_FAILURE() << "no refusal";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin);
    EXPECT_NE(std::string(e.what()).find("chose expert 4 of 4"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace drivetrain::test
