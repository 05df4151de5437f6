// The conformance suite of data_parallel over every installed implementation.
#include <gtest/gtest.h>

#include <algorithm>

#include <drivetrain/data_parallel.h>

#include <drivetrain/testkit/data_parallel/suite.h>
#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/kit/suite.h>
#include "plan/plain_storage.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

PoisonedMemory poisoned;

struct OptionSet {
  const char* name;
  const char* options;
  int64_t multiple = 1;  // of ranks
};

// Plugins that are not named here run with their defaults.
constexpr OptionSet kOptionSets[] = {
    {"ddp", "{}"},
    {"zero", R"({"stage": 1, "reduce_bucket_size": 2000, "allgather_bucket_size": 2000, "overlap_comm": true})"},
    {"zero", R"({"stage": 2, "reduce_bucket_size": 2000, "overlap_comm": false, "contiguous_gradients": true})"},
    {"zero", R"({"stage": 3})"},
    {"zero", R"({"stage": 3, "reduce_bucket_size": 2000, "stage3_prefetch_bucket_size": 3000, "sub_group_size": 2000,
                 "stage3_param_persistence_threshold": 100, "stage3_max_live_parameters": 6000,
                 "stage3_max_reuse_distance": 4000})"},
    {"zero", R"({"stage": 3, "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 0,
                 "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0})"},
    {"zero", R"({"stage": 1, "group_size": 1})"},
    {"zero", R"({"stage": 1, "group_size": 2})", 2},
    {"zero", R"({"stage": 2, "group_size": 2, "reduce_bucket_size": 2000})", 2},
    {"zero", R"({"stage": 3, "mics_shard_size": 2, "stage3_param_persistence_threshold": 100})", 2},
    {"zero", R"({"stage": 3, "zero_hpz_partition_size": 2, "stage3_param_persistence_threshold": 100})", 2},
    {"fsdp", "{}"},
    {"fsdp", R"({"reshard_after_forward": false, "prefetch": 0})"},
    {"fsdp", R"({"reshard_after_forward": true, "prefetch": 3})"},
    {"fsdp", R"({"shard_group_size": 2})", 2},
};

bool is_named_here(const std::string& name) {
  return std::any_of(std::begin(kOptionSets), std::end(kOptionSets),
                     [&](const OptionSet& set) { return name == set.name; });
}

TEST(DataParallelConformance, plugins_that_are_not_named_here_pass_with_their_defaults) {
  for (const std::string& name : installed_plugins().names(DataParallel::kKind))
    if (!is_named_here(name)) run_suite({.kind = DataParallel::kKind, .name = name, .train = train_by_threads});
}

// Without a plugin the runtime owns the storage.
TEST(DataParallelConformance, the_plain_storage_passes_on_one_rank) {
  DataParallelTrial trial{.name = "none", .accumulation = 3};
  trial.make = [](const Services& services) { return std::make_shared<PlainStorage>(services); };
  check_data_parallel(trial);
  trial.param = at::kBFloat16;
  check_data_parallel(trial);
  check_frozen(trial);
}

class DataParallelOptions : public testing::TestWithParam<OptionSet> {};

TEST_P(DataParallelOptions, pass) {
  run_suite({DataParallel::kKind, GetParam().name, parse_json(GetParam().options, "test"), GetParam().multiple,
             train_by_threads});
}

INSTANTIATE_TEST_SUITE_P(Conformance, DataParallelOptions, testing::ValuesIn(kOptionSets),
                         [](const auto& info) { return concat(info.param.name, "_", info.index); });

}  // namespace
}  // namespace drivetrain::test
