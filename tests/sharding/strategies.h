// Ways of sharing a model's state out over ranks, as sections of a config. Limits are small, so that in a model of some
// ten thousand elements every mechanism works: many buckets, prefetch, persistence, parameters that have to go before
// others come.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::test {

struct ShardingStrategy {
  const char* name;
  const char* plugin;              // what the sections must lead to
  const char* sections;            // added to a config
  int ranks = 1;                   // a multiple of which it wants
  bool sums_in_two_steps = false;  // inside groups of that many ranks, then across them
};

inline const std::vector<ShardingStrategy>& sharding_strategies() {
  static const std::vector<ShardingStrategy> list = {
      {"ddp", "ddp", R"({"data_parallel": "ddp"})"},
      {"zero stage 0", "ddp", R"({"zero_optimization": {"stage": 0, "reduce_bucket_size": 3000}})"},
      {"zero stage 1", "zero",
       R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 3000, "allgather_bucket_size": 3000}})"},
      {"zero stage 1, defaults", "zero", R"({"zero_optimization": {"stage": 1}})"},
      {"zero stage 2", "zero", R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 3000}})"},
      {"zero stage 3", "zero",
       R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": 3000, "stage3_prefetch_bucket_size": 4000,
           "stage3_param_persistence_threshold": 100, "stage3_max_live_parameters": 12000,
           "stage3_max_reuse_distance": 5000, "sub_group_size": 5000}})"},
      {"zero stage 3, nothing kept or fetched ahead", "zero",
       R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": 3000, "stage3_prefetch_bucket_size": 0,
           "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}})"},
      {"fsdp", "fsdp", R"({"data_parallel": "fsdp"})"},
      {"fsdp, whole from forward to backward", "fsdp",
       R"({"data_parallel": {"type": "fsdp", "params": {"reshard_after_forward": false, "prefetch": 0}}})"},
      {"zero stage 1, group_size 1", "zero", R"({"zero_optimization": {"stage": 1, "group_size": 1}})"},
      {"zero stage 1, group_size 2", "zero",
       R"({"zero_optimization": {"stage": 1, "group_size": 2, "reduce_bucket_size": 3000}})", 2, true},
      {"zero stage 2, group_size 2", "zero",
       R"({"zero_optimization": {"stage": 2, "group_size": 2, "reduce_bucket_size": 3000}})", 2, true},
      {"zero stage 3, mics_shard_size 2", "zero",
       R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2, "reduce_bucket_size": 3000,
           "stage3_prefetch_bucket_size": 4000, "stage3_param_persistence_threshold": 100}})",
       2, true},
      {"zero stage 3, zero_hpz_partition_size 2", "zero",
       R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2, "reduce_bucket_size": 3000,
           "stage3_prefetch_bucket_size": 4000, "stage3_param_persistence_threshold": 100}})",
       2},
      {"fsdp, shard_group_size 2", "fsdp",
       R"({"data_parallel": {"type": "fsdp", "params": {"shard_group_size": 2, "prefetch": 2}}})", 2, true},
  };
  return list;
}

}  // namespace drivetrain::test
