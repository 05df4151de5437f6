// The conformance suite of optimizer over every built implementation.
#include <gtest/gtest.h>

#include <algorithm>

#include <drivetrain/optimizer.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {
namespace {

struct OptionSet {
  const char* name;
  const char* options;
};

// Plugins that are not named here run with their defaults.
constexpr OptionSet kOptionSets[] = {
    {"adamw", R"({"lr": 0.01, "weight_decay": 0.1})"},
    {"adam", R"({"lr": 0.01, "weight_decay": 0.1, "adam_w_mode": false, "decay": "all"})"},
    {"sgd", R"({"lr": 0.01, "weight_decay": 0.1, "momentum": 0.9, "nesterov": true})"},
    {"sgd", R"({"lr": 0.01})"},
    {"muon", R"({"lr": 0.01, "weight_decay": 0.1})"},
    {"muon", R"({"lr": 0.01, "ns_method": "standard", "nesterov": false, "adjust_lr_fn": "match_rms_adamw"})"},
    {"muon", R"({"lr": 0.01, "ns_dtype": "float32", "decay": "all"})"},
};

TEST(OptimizerConformance, plugins_that_are_not_named_here_pass_with_their_defaults) {
  for (const std::string& name : installed_plugins().names(Optimizer::kKind))
    if (std::none_of(std::begin(kOptionSets), std::end(kOptionSets),
                     [&](const OptionSet& set) { return name == set.name; }))
      run_suite({Optimizer::kKind, name});
}

class OptimizerOptions : public testing::TestWithParam<OptionSet> {};

TEST_P(OptimizerOptions, pass) {
  run_suite({Optimizer::kKind, GetParam().name, parse_json(GetParam().options, "test")});
}

INSTANTIATE_TEST_SUITE_P(Conformance, OptimizerOptions, testing::ValuesIn(kOptionSets),
                         [](const auto& info) { return concat(info.param.name, "_", info.index); });

}  // namespace
}  // namespace drivetrain::test
