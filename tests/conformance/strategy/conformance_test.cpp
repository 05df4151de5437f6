// The conformance suite of strategies over every installed one.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <drivetrain/testkit/kit/suite.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

struct OptionSet {
  const char* name;
  const char* options;
};

// Plugins that are not named here run with their defaults. Without recompute_cheap, fused_block keeps what the policy
// says, nothing less. The rate of router_bias is so large that choices change within a few steps.
constexpr OptionSet kOptionSets[] = {
    {"fused_block", R"({"recompute_cheap": false})"},
    {"ema", R"({"decay": 0.9})"},
    {"ema", R"({"decay": 0.9, "update_after_step": 2, "update_every": 2, "save_final": false})"},
    {"lora", "{}"},
    {"lora", R"({"targets": "all-linear", "rank": 2, "dropout": 0.2})"},
    {"lora", R"({"targets": "all-linear", "save": "both"})"},
    {"router_bias", R"({"update_rate": 0.1})"},
};

TEST(StrategyConformance, plugins_that_are_not_named_here_pass_with_their_defaults) {
  at::set_num_threads(1);
  for (const std::string& name : installed_plugins().names("strategy"))
    if (std::none_of(std::begin(kOptionSets), std::end(kOptionSets),
                     [&](const OptionSet& set) { return name == set.name; }))
      run_suite({.kind = "strategy", .name = name, .train = train_by_threads});
}

class StrategyOptions : public testing::TestWithParam<OptionSet> {};

TEST_P(StrategyOptions, pass) {
  // The models are small: beside other tests, threads that wait for each other take ten times as long.
  at::set_num_threads(1);
  run_suite({.kind = "strategy",
             .name = GetParam().name,
             .options = parse_json(GetParam().options, "test"),
             .train = train_by_threads});
}

INSTANTIATE_TEST_SUITE_P(Conformance, StrategyOptions, testing::ValuesIn(kOptionSets),
                         [](const auto& info) { return concat(info.param.name, "_", info.index); });

}  // namespace
}  // namespace drivetrain::test
