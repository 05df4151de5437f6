// The conformance suite of checkpoint_policy over every built implementation.
#include <gtest/gtest.h>

#include <algorithm>

#include <drivetrain/checkpoint_policy.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {
namespace {

struct OptionSet {
  const char* name;
  const char* options;
};

// Plugins that are not named here run with their defaults.
constexpr OptionSet kOptionSets[] = {
    {"every", "{}"},
    {"every", R"({"steps": 3, "keep": 1})"},
    {"every", R"({"minutes": 1, "at_end": false, "keep": 0})"},
    {"every", R"({"steps": 4, "minutes": 0.5, "keep": 3, "keep_every": 8})"},
    {"every", R"({"steps": 3, "when_busy": "skip"})"},
    {"best", "{}"},
    {"best", R"({"metric": "loss", "mode": "max", "keep": 3})"},
};

TEST(CheckpointPolicyConformance, plugins_that_are_not_named_here_pass_with_their_defaults) {
  for (const std::string& name : installed_plugins().names(CheckpointPolicy::kKind))
    if (std::none_of(std::begin(kOptionSets), std::end(kOptionSets),
                     [&](const OptionSet& set) { return name == set.name; }))
      run_suite({CheckpointPolicy::kKind, name});
}

class CheckpointPolicyOptions : public testing::TestWithParam<OptionSet> {};

TEST_P(CheckpointPolicyOptions, pass) {
  run_suite({CheckpointPolicy::kKind, GetParam().name, parse_json(GetParam().options, "test")});
}

INSTANTIATE_TEST_SUITE_P(Conformance, CheckpointPolicyOptions, testing::ValuesIn(kOptionSets),
                         [](const auto& info) { return concat(info.param.name, "_", info.index); });

}  // namespace
}  // namespace drivetrain::test
