// data_parallel/zero without a run: what its section asks for, and which ranks share what.
#include <drivetrain/plan_record.h>

#include "test_plan.h"

namespace drivetrain::test {
namespace {

TEST(ZeroOptions, the_stage_says_what_is_shared_out) {
  for (const int64_t stage : {1, 2, 3}) {
    const Planned p(concat(R"({"stage": )", stage, "}"));
    EXPECT_EQ(p.s.shard_grads, stage >= 2);
    EXPECT_EQ(p.s.shard_values, stage == 3);
    EXPECT_EQ(p.s.shard_axes, Axes{"dp"});
    EXPECT_EQ(p.s.replica_axes, Axes{});
    EXPECT_EQ(p.plugin.shard_ranks(), 8);
    EXPECT_EQ(p.axes(), "dp rest");
    EXPECT_EQ(p.refusals() + p.idle() + p.costs(), "");
  }
}

TEST(ZeroOptions, defaults_are_deepspeeds_but_for_the_reuse_distance) {
  const ShardingOptions two = Planned(R"({"stage": 2})").s;
  EXPECT_EQ(two.bucket, 500'000'000);
  EXPECT_EQ(two.update_chunk, 1'000'000'000);
  EXPECT_TRUE(two.overlap);
  const ShardingOptions three = Planned(R"({"stage": 3})").s;
  EXPECT_EQ(three.prefetch, 50'000'000);
  EXPECT_EQ(three.persistent, 100'000);
  EXPECT_EQ(three.live, 1'000'000'000);
  EXPECT_EQ(three.reuse_distance, 50'000'000);
}

TEST(ZeroOptions, every_size_arrives_and_keys_of_stage_3_need_no_prefix) {
  for (const std::string prefix : {"", "stage3_"}) {
    const Planned p(concat(R"({"stage": 3, "reduce_bucket_size": 5e4, "sub_group_size": 7e6, ")", prefix,
                           R"(prefetch_bucket_size": 11, ")", prefix, R"(param_persistence_threshold": 12, ")", prefix,
                           R"(max_live_parameters": 13, ")", prefix, R"(max_reuse_distance": 14})"));
    EXPECT_EQ(p.s.bucket, 50'000);
    EXPECT_EQ(p.s.update_chunk, 7'000'000);
    EXPECT_TRUE(p.s.overlap);
    EXPECT_EQ(p.s.prefetch, 11);
    EXPECT_EQ(p.s.persistent, 12);
    EXPECT_EQ(p.s.live, 13);
    EXPECT_EQ(p.s.reuse_distance, 14);
    EXPECT_EQ(p.refusals() + p.idle(), "");
  }
  const OptionTable table = zero_table();
  for (const char* key :
       {"module_granularity_threshold", "model_persistence_threshold", "use_all_reduce_for_fetch_params",
        "allgather_sequential", "gather_16bit_weights_on_model_save", "gather_fp16_weights_on_model_save"}) {
    Problems problems;
    table.parse(parse_json(concat("{\"stage\": 3, \"", key, "\": ",
                                  key == std::string("module_granularity_threshold") ||
                                          key == std::string("model_persistence_threshold")
                                      ? "0"
                                      : "true",
                                  "}"),
                           "a"),
                "data_parallel/zero", "zero_optimization", problems);
    EXPECT_EQ(problems.text(), "") << key;
    ASSERT_EQ(problems.notes().size(), 1u) << key;
    EXPECT_TRUE(has(problems.notes()[0].message, "renamed to \"stage3_")) << problems.notes()[0].message;
  }
}

TEST(ZeroOptions, the_smaller_bucket_size_counts_while_there_are_two) {
  EXPECT_EQ(Planned(R"({"stage": 1, "allgather_bucket_size": 1000})").s.bucket, 1000);
  EXPECT_EQ(Planned(R"({"stage": 2, "reduce_bucket_size": 900, "allgather_bucket_size": 1000})").s.bucket, 900);
  EXPECT_EQ(Planned(R"({"stage": 2, "reduce_bucket_size": 0})").s.bucket, 1);  // a bucket per parameter
  const Planned three(R"({"stage": 3, "allgather_bucket_size": 1000})");
  EXPECT_EQ(three.s.bucket, 500'000'000);
  EXPECT_EQ(three.idle(),
            "allgather_bucket_size changes nothing: at stage 3 the buckets have reduce_bucket_size elements");
}

TEST(ZeroOptions, resolved_options_give_the_same_plan_without_a_word) {
  for (const char* json : {R"({"stage": 1})", R"({"stage": 3})", R"({"stage": 3, "allgather_sequential": true})"}) {
    const ZeroOptions options = parsed(json);
    const Planned again(zero_table().to_value(&options).to_json());
    EXPECT_EQ(again.refusals() + again.idle(), "") << json;
    EXPECT_EQ(again.s.bucket, Planned(json).s.bucket);
    EXPECT_EQ(again.s.prefetch, Planned(json).s.prefetch);
  }
}

TEST(ZeroOptions, sums_over_ranks_come_as_often_as_the_section_else_the_run_else_the_stage_says) {
  const auto every = [](int64_t stage, const char* more, std::optional<int64_t> run) {
    return Planned(concat(R"({"stage": )", stage, more, "}"), {.accumulation = 4, .reduce_every = run}).s.reduce_every;
  };
  EXPECT_EQ(every(1, "", {}), 0);
  EXPECT_EQ(every(2, "", {}), 1);
  EXPECT_EQ(every(3, "", {}), 1);
  EXPECT_EQ(every(1, "", 1), 1);
  EXPECT_EQ(every(3, "", 0), 0);
  EXPECT_EQ(every(3, R"(, "reduce_every": 2)", 0), 2);
  EXPECT_EQ(Planned(R"({"stage": 1})", {.accumulation = 4}).s.micro_batches, 4);
  EXPECT_EQ(Planned(R"({"stage": 1})", {.accumulation = 0}).s.micro_batches, 1);  // not solved yet
}

TEST(ZeroOptions, what_accumulation_costs_is_said) {
  const Given run{.accumulation = 4};
  EXPECT_EQ(Planned(R"({"stage": 3})", run).costs(),
            "gathers every unit 8 times per step, 3.49 GB sent by each rank, unless the ranks share its memory");
  EXPECT_EQ(Planned(R"({"stage": 3})", {.ranks = 1, .accumulation = 4}).costs(), "");
  EXPECT_EQ(Planned(R"({"stage": 2})", run).costs(), "");
  EXPECT_EQ(Planned(R"({"stage": 2, "reduce_every": 0})", run).costs(),
            "reduce_every = 0 adds up 4 micro-batches before their gradients are summed over ranks: every rank holds "
            "whole gradients");
  EXPECT_TRUE(
      has(Planned(R"({"stage": 2, "reduce_every": 3})", run).costs(), "reduce_every = 3 adds up 3 micro-batches"));
  EXPECT_EQ(Planned(R"({"stage": 2, "reduce_every": 3})").costs(), "");
}

TEST(ZeroOptions, settings_that_keep_a_model_whole_are_named) {
  EXPECT_EQ(Planned(R"({"stage": 3, "stage3_max_reuse_distance": 1e9})").costs(),
            "stage3_max_reuse_distance = 1000000000 is not less than a rank's 124475904 parameters: all stay whole "
            "from their forward "
            "to their backward");
  EXPECT_TRUE(has(Planned(R"({"stage": 3, "stage3_param_persistence_threshold": 1e9})").costs(),
                  "stay whole: here that is all large ones; lower it to share them out"));
}

TEST(ZeroOptions, groups_of_neighbours_share_a_copy_at_every_stage) {
  for (const int64_t stage : {1, 2, 3}) {
    const Planned p(concat(R"({"group_size": 2, "stage": )", stage, "}"));
    EXPECT_EQ(p.axes(), "dp 2, replica rest");
    EXPECT_EQ(p.s.shard_axes, Axes{"dp"});
    EXPECT_EQ(p.s.replica_axes, Axes{"replica"});
    EXPECT_EQ(p.plugin.shard_ranks(), 2);
    EXPECT_EQ(p.refusals() + p.idle() + p.costs(), "");
    EXPECT_EQ(p.ctx.claims()[0].place, PlanRecord::kDataPlace);
    EXPECT_EQ(p.ctx.claims()[1].place, PlanRecord::kReplicaPlace);
    EXPECT_EQ(Planned(concat(R"({"group_size": -1, "stage": )", stage, "}")).axes(), "dp rest");
    EXPECT_EQ(Planned(concat(R"({"group_size": 1, "stage": )", stage, "}")).axes(), "dp 1, replica rest");
  }
  const Planned mics(R"({"stage": 3, "mics_shard_size": 4})");
  EXPECT_EQ(mics.axes(), "dp 4, replica rest");
  EXPECT_EQ(mics.plugin.shard_ranks(), 4);
  EXPECT_EQ(Planned(R"({"stage": 3, "mics_shard_size": -1})").axes(), "dp rest");
}

TEST(ZeroOptions, a_second_copy_for_backward_is_cut_over_neighbours) {
  const Planned p(R"({"stage": 3, "zero_hpz_partition_size": 2})");
  EXPECT_EQ(p.axes(), "dp 2, replica rest");
  EXPECT_EQ(p.s.shard_axes, (Axes{"dp", "replica"}));
  EXPECT_EQ(p.s.replica_axes, Axes{});
  EXPECT_EQ(p.s.backward_axes, Axes{"dp"});
  EXPECT_EQ(p.plugin.shard_ranks(), 8);
  EXPECT_EQ(p.plugin.second_ranks(), 2);
  EXPECT_EQ(p.refusals() + p.idle(), "");
  EXPECT_EQ(Planned(R"({"stage": 3, "zero_hpz_partition_size": 1})").axes(), "dp rest");
  const Planned all(R"({"stage": 3, "zero_hpz_partition_size": 8})");
  EXPECT_EQ(all.axes(), "dp rest");
  EXPECT_EQ(all.idle(), "zero_hpz_partition_size changes nothing: all ranks are in one such group");
  EXPECT_EQ(Planned(R"({"stage": 2, "zero_hpz_partition_size": 2})").idle(),
            "zero_hpz_partition_size changes nothing: it is for stage 3; here every rank holds all parameters");
}

TEST(ZeroOptions, sizes_that_do_not_divide_the_ranks_are_refused_with_those_that_do) {
  EXPECT_EQ(
      Planned(R"({"stage": 1, "group_size": 3})", {.ranks = 8}).refusals(),
      "group_size = 3 does not divide the 8 ranks of this run. Use one of 1, 2, 4, 8, or start a multiple of 3 ranks");
  EXPECT_TRUE(has(Planned(R"({"stage": 3, "mics_shard_size": 16})").refusals(),
                  "mics_shard_size = 16 does not divide the 8 ranks"));
  EXPECT_TRUE(has(Planned(R"({"stage": 3, "zero_hpz_partition_size": 5})").refusals(),
                  "zero_hpz_partition_size = 5 does not divide"));
  EXPECT_TRUE(has(Planned(R"({"stage": 1, "group_size": 2})", {.ranks = 1}).refusals(),
                  "does not divide the 1 rank of this run"));
}

TEST(ZeroOptions, keys_that_contradict_each_other_are_refused) {
  EXPECT_EQ(Planned(R"({"stage": 3, "group_size": 2, "mics_shard_size": 4})").refusals(),
            "group_size = 2 and mics_shard_size = 4 mean the same and differ; remove one of them");
  EXPECT_EQ(Planned(R"({"stage": 3, "group_size": 4, "mics_shard_size": 4})").refusals(), "");
  EXPECT_TRUE(has(Planned(R"({"stage": 1, "mics_shard_size": 4})").refusals(),
                  "mics_shard_size = 4 is for stage 3; found stage 1"));
  EXPECT_TRUE(has(Planned(R"({"stage": 3, "mics_shard_size": 4, "zero_hpz_partition_size": 2})").refusals(),
                  "remove one of them"));
}

TEST(ZeroOptions, groups_that_are_no_power_of_two_have_sums_of_their_own) {
  EXPECT_TRUE(has(Planned(R"({"stage": 1, "group_size": 3})", {.ranks = 6}).costs(),
                  "last bits differ from other strategies'"));
  EXPECT_EQ(Planned(R"({"stage": 1, "group_size": 3})", {.ranks = 3}).costs(), "");
  EXPECT_EQ(Planned(R"({"stage": 1, "group_size": 2})", {.ranks = 6}).costs(), "");
}

TEST(ZeroOptions, no_stage_is_named_and_0_is_whole_copies) {
  EXPECT_TRUE(has(Planned("{}").idle(), "it has no \"stage\", and the default is 0"));
  const Planned off(R"({"stage": 0, "group_size": 3, "offload_param": {"device": null}, "reduce_every": 2})");
  EXPECT_EQ(off.refusals() + off.costs(), "");
  EXPECT_EQ(off.idle(), "group_size changes nothing: stage is 0 and every rank holds everything");
  EXPECT_EQ(off.s.reduce_every, 2);
  EXPECT_EQ(off.axes(), "dp rest");
  EXPECT_EQ(off.s.shard_axes, Axes{});
  EXPECT_EQ(off.s.replica_axes, Axes{"dp"});
  EXPECT_TRUE(has(error_of([] { parsed(R"({"stage": 4})"); }),
                  "zero_optimization.stage is 4, but data_parallel/zero takes 0 to 3"));
  EXPECT_TRUE(has(error_of([] { parsed(R"({"stage": 1, "reduce_bucket_sise": 5})"); }),
                  "did you mean \"reduce_bucket_size\"?"));
}

}  // namespace
}  // namespace drivetrain::test
