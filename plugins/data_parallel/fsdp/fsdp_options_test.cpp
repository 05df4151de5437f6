// data_parallel/fsdp without a run: its options, which ranks share what, what it refuses and names.
#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/recorded_when_asked.h>

#include "fsdp.h"
#include "support/sharding_plan.h"

namespace drivetrain::test {
namespace {

FsdpOptions parsed(const std::string& json) {
  return parsed_options<Fsdp>(json, "data_parallel/fsdp", "data_parallel.params");
}

struct Planned : PlannedSharding<Fsdp> {
  Planned(const std::string& json, const Given& run = {}) : PlannedSharding(parsed(json), ModelFacts(), run) {}
};

TEST(FsdpOptions, everything_is_shared_out_over_all_ranks_unless_asked_otherwise) {
  const Planned p("{}");
  EXPECT_TRUE(p.s.shard_grads && p.s.shard_values && p.s.release_after_forward);
  EXPECT_EQ(p.s.prefetch_units, 1);
  EXPECT_EQ(p.s.prefetch, 0);
  EXPECT_EQ(p.s.persistent, 0);
  EXPECT_EQ(p.s.reduce_every, 1);
  EXPECT_EQ(p.axes(), "dp rest");
  EXPECT_EQ(p.s.shard_axes, Axes{"dp"});
  EXPECT_EQ(p.s.replica_axes, Axes{});
  EXPECT_EQ(p.plugin.shard_ranks(), 8);
  EXPECT_EQ(p.refusals() + p.idle() + p.costs(), "");
}

TEST(FsdpOptions, every_option_arrives) {
  const Planned p(
      R"({"reshard_after_forward": false, "prefetch": 3, "reduce_every": 2, "param_persistence_threshold": 1e3})");
  EXPECT_FALSE(p.s.release_after_forward);
  EXPECT_TRUE(p.s.shard_values);
  EXPECT_EQ(p.s.prefetch_units, 3);
  EXPECT_EQ(p.s.reduce_every, 2);
  EXPECT_EQ(p.s.persistent, 1000);
  EXPECT_EQ(Planned("{}", {.reduce_every = 0}).s.reduce_every, 0);
  EXPECT_EQ(Planned(R"({"reduce_every": 1})", {.reduce_every = 0}).s.reduce_every, 1);
}

TEST(FsdpOptions, hybrid_groups_share_a_copy_inside_and_replicate_across) {
  const Planned p(R"({"shard_group_size": 2})");
  EXPECT_EQ(p.axes(), "dp 2, replica rest");
  EXPECT_EQ(p.s.shard_axes, Axes{"dp"});
  EXPECT_EQ(p.s.replica_axes, Axes{"replica"});
  EXPECT_EQ(p.plugin.shard_ranks(), 2);
  EXPECT_EQ(p.ctx.claims()[1].place, PlanRecord::kReplicaPlace);
  EXPECT_EQ(Planned(R"({"shard_group_size": 3})").refusals(),
            "shard_group_size = 3 does not divide the 8 ranks of this run. Use one of 1, 2, 4, 8, or start a multiple "
            "of 3 ranks");
  EXPECT_TRUE(has(Planned(R"({"shard_group_size": 3})", {.ranks = 6}).costs(), "last bits differ"));
  EXPECT_TRUE(has(error_of([] { parsed(R"({"shard_group_size": 0})"); }), "at least 1"));
}

TEST(FsdpOptions, the_older_names_of_strategies_mean_what_they_mean_in_pytorch) {
  EXPECT_TRUE(Planned(R"({"sharding_strategy": "FULL_SHARD"})").s.release_after_forward);
  const Planned grad_op(R"({"sharding_strategy": "shard_grad_op"})");
  EXPECT_TRUE(grad_op.s.shard_values);
  EXPECT_FALSE(grad_op.s.release_after_forward);
  const Planned hybrid(R"({"sharding_strategy": "HYBRID_SHARD"})");
  EXPECT_EQ(hybrid.axes(), "dp 4, replica rest");  // the ranks of a host
  EXPECT_EQ(Planned(R"({"sharding_strategy": "HYBRID_SHARD", "shard_group_size": 2})").axes(), "dp 2, replica rest");
  EXPECT_FALSE(Planned(R"({"sharding_strategy": "_HYBRID_SHARD_ZERO2"})").s.release_after_forward);
  const Planned none(R"({"sharding_strategy": "NO_SHARD"})");
  EXPECT_FALSE(none.s.shard_values || none.s.shard_grads);
  EXPECT_EQ(none.s.replica_axes, Axes{"dp"});
  EXPECT_EQ(none.s.shard_axes, Axes{});
  EXPECT_EQ(none.plugin.shard_ranks(), 1);
}

TEST(FsdpOptions, options_that_contradict_each_other_are_refused) {
  EXPECT_TRUE(has(Planned(R"({"sharding_strategy": "FULL_SHARD", "reshard_after_forward": false})").refusals(),
                  "sharding_strategy \"FULL_SHARD\" and reshard_after_forward = false contradict each other"));
  EXPECT_EQ(Planned(R"({"sharding_strategy": "SHARD_GRAD_OP", "reshard_after_forward": false})").refusals(), "");
  EXPECT_TRUE(has(Planned(R"({"sharding_strategy": "NO_SHARD", "shard_group_size": 2})").refusals(),
                  "groups are HYBRID_SHARD"));
}

TEST(FsdpOptions, what_accumulation_costs_is_said) {
  const Given run{.accumulation = 4};
  EXPECT_EQ(Planned("{}", run).costs(), "gathers every unit 8 times per step, unless the ranks share its memory");
  EXPECT_EQ(Planned(R"({"reshard_after_forward": false})", run).costs(),
            "gathers every unit 4 times per step, unless the ranks share its memory");
  EXPECT_EQ(Planned(R"({"shard_group_size": 1})", run).costs(), "");
  EXPECT_TRUE(has(Planned(R"({"reduce_every": 0})", run).costs(), "every rank holds whole gradients"));
}

TEST(FsdpOptions, a_precision_policy_may_say_what_the_run_says) {
  const Given bf16{.dtypes = {at::kBFloat16, at::kFloat, at::kFloat, at::kFloat}};
  EXPECT_EQ(
      Planned(R"({"mixed_precision": {"param_dtype": "torch.bfloat16", "reduce_dtype": "fp32"}})", bf16).refusals(),
      "");
  EXPECT_EQ(Planned(R"({"mp_policy": {"param_dtype": "float32", "reduce_dtype": null}})").refusals(), "");
  EXPECT_EQ(Planned(R"({"mixed_precision": {"param_dtype": "bfloat16"}})").refusals(),
            "mixed_precision.param_dtype is bfloat16, but units of this run compute in float32; set \"bf16\": "
            "{\"enabled\": true} at the "
            "top level instead");
  EXPECT_EQ(Planned(R"({"mixed_precision": {"reduce_dtype": "bf16"}})", bf16).refusals(),
            "mixed_precision.reduce_dtype is bfloat16, but gradients of this run are summed in float32; set "
            "\"communication_data_type\": \"bf16\" at the top level instead");
  EXPECT_TRUE(has(Planned(R"({"mixed_precision": {"param_dtype": "half"}})", bf16).refusals(),
                  "set \"fp16\": {\"enabled\": true}"));
  EXPECT_TRUE(has(Planned(R"({"mixed_precision": {"param_dtype": "int8"}})").refusals(),
                  "types are float32, bfloat16 and float16"));
  EXPECT_TRUE(has(Planned(R"({"mixed_precision": {"output_dtype": "float32"}})").refusals(), "remove it"));
  EXPECT_TRUE(has(Planned(R"({"mixed_precision": {"cast_forward_inputs": true}})").idle(),
                  "cast_forward_inputs changes nothing"));
}

TEST(FsdpOptions, arguments_of_the_older_wrapper_are_answered) {
  EXPECT_TRUE(
      has(error_of([] { parsed(R"({"forward_prefetch": true})"); }), "set \"prefetch\" to the number of units"));
  EXPECT_TRUE(has(error_of([] { parsed(R"({"cpu_offload": true})"); }), "not in this version"));
  EXPECT_TRUE(has(error_of([] { parsed(R"({"use_orig_params": true})"); }), "remove it"));
}

TEST(FsdpOptions, what_is_given_for_gathers_is_named_where_there_are_none) {
  const char* const given = R"("reshard_after_forward": true, "prefetch": 1, "param_persistence_threshold": 0)";
  for (const std::string whole : {R"("sharding_strategy": "NO_SHARD")", R"("shard_group_size": 1)"}) {
    const std::string idle = Planned(concat("{", whole, ", ", given, "}")).idle();
    for (const char* key : {"reshard_after_forward", "prefetch", "param_persistence_threshold"})
      EXPECT_TRUE(has(idle, concat(key, " changes nothing: "))) << idle;
    EXPECT_TRUE(has(idle, ": every rank holds all parameters")) << idle;
    EXPECT_EQ(Planned("{" + whole + "}").idle(), "");
    EXPECT_EQ(Planned("{" + whole + R"(, "reduce_every": 1})").idle(), "");
  }
  EXPECT_EQ(Planned(concat("{", given, "}"), {.ranks = 1}).idle(), "");
}

TEST(FsdpOptions, resolved_options_give_the_same_plan_without_a_word) {
  for (const char* json : {"{}", R"({"sharding_strategy": "NO_SHARD"})", R"({"shard_group_size": 1})",
                           R"({"sharding_strategy": "SHARD_GRAD_OP"})"}) {
    const FsdpOptions options = parsed(json);
    const Planned again(fsdp_table().to_value(&options).to_json()), once(json);
    EXPECT_EQ(again.refusals() + again.idle(), "") << json;
    EXPECT_EQ(again.s.prefetch_units, once.s.prefetch_units);
    EXPECT_EQ(again.s.release_after_forward, once.s.release_after_forward);
  }
}

TEST(FsdpOptions, where_nothing_is_shared_out_gradients_are_summed_once_per_step) {
  EXPECT_EQ(Planned(R"({"sharding_strategy": "NO_SHARD"})", {.accumulation = 4}).s.reduce_every, 0);
  EXPECT_EQ(Planned(R"({"shard_group_size": 1})", {.accumulation = 4}).s.reduce_every, 0);
  EXPECT_EQ(Planned("{}", {.ranks = 1, .accumulation = 4}).s.reduce_every, 0);
  EXPECT_EQ(Planned("{}", {.ranks = 1, .accumulation = 4, .reduce_every = 1}).s.reduce_every, 1);
}

TEST(FsdpOptions, groups_whose_sums_are_rounded_in_between_have_bits_of_their_own) {
  const Dtypes rounded{at::kHalf, at::kFloat, at::kHalf, at::kFloat};
  EXPECT_TRUE(has(Planned(R"({"shard_group_size": 2})", {.dtypes = rounded}).costs(),
                  "shard_group_size = 2: sums over ranks follow the groups and are rounded to float16 in between"));
  EXPECT_EQ(Planned("{}", {.dtypes = rounded}).costs(), "");
}

TEST(FsdpOptions, a_step_is_recorded_for_who_asks_and_by_itself_where_nothing_is_gathered) {
  const Planned gathers("{}", {.device = "cuda"});
  EXPECT_TRUE(gathers.ctx.capturables().empty());
  ASSERT_EQ(gathers.ctx.offers().size(), 1u);
  EXPECT_EQ(gathers.ctx.offers()[0].text, toolkit::kRecordedWhenAsked);
  EXPECT_EQ(gathers.costs(), "");
  const Planned none(R"({"sharding_strategy": "NO_SHARD"})", {.device = "cuda"});
  EXPECT_EQ(none.ctx.capturables().size(), 1u);
  EXPECT_EQ(none.costs(), "");
}

}  // namespace
}  // namespace drivetrain::test
