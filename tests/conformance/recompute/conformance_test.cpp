// The conformance suite of recompute over every installed policy, and how configs choose one.
#include <gtest/gtest.h>

#include <algorithm>

#include <drivetrain/recompute.h>

#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/recompute/suite.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

PoisonedMemory poisoned;

// Policies that are not named here run with their defaults.
constexpr const char* kPolicies[] = {
    R"({"type": "none"})",
    R"({"type": "full"})",
    R"({"type": "full", "params": {"fraction": 0.4}})",
    R"({"cpu_checkpointing": true, "partition_activations": true})",
    R"({"type": "selective"})",
    R"({"type": "selective", "params": {"regions": ["attn.core"], "fraction": 0.7}})",
    R"({"type": "selective", "params": {"regions": ["norm", "mlp.act"]}})",
    R"({"type": "offload"})",
};

class RecomputePolicies : public testing::TestWithParam<const char*> {};

TEST_P(RecomputePolicies, change_no_bit) { run_recompute_suite(parse_json(GetParam(), "policy"), train_by_threads); }

INSTANTIATE_TEST_SUITE_P(Conformance, RecomputePolicies, testing::ValuesIn(kPolicies));

TEST(RecomputeConformance, policies_that_are_not_named_here_pass_with_their_defaults) {
  for (const std::string& name : built_plugins().names(Recompute::kKind)) {
    const bool named = std::any_of(std::begin(kPolicies), std::end(kPolicies), [&](const std::string& policy) {
      return policy.find(concat("\"", name, "\"")) != std::string::npos;
    });
    if (!named) run_recompute_suite(Value(name), train_by_threads);
  }
}

// Dropout is really drawn and the seed counts, else equal bits would say nothing.
TEST(RecomputeConformance, a_digest_tells_runs_apart) {
  RecomputeCase other = recompute_cases()[0];
  const std::string plain = recompute_bits(other, nullptr, train_by_threads);
  other.sections = R"({"fused_block": false, "attention": "standard", "seed": 6})";
  EXPECT_NE(recompute_bits(other, nullptr, train_by_threads), plain);
}

// "recompute/full" of a section, or what is wrong with it.
std::string chosen(const std::string& section) {
  Value config = recompute_config(recompute_cases().front());
  config.set("activation_checkpointing", parse_json(section, "a.json"));
  Problems problems;
  std::string text;
  for (const ChosenPlugin& plugin : choose_plugins(config, built_plugins(), "cpu", problems, Purpose::train))
    if (plugin.kind() == Recompute::kKind && plugin.selection.enabled) text += plugin.id();
  return problems.empty() ? text : problems.text();
}

TEST(RecomputeSection, is_deepspeeds_without_a_type_and_off_without_a_section) {
  EXPECT_EQ(
      chosen(R"({"partition_activations": false, "cpu_checkpointing": false, "contiguous_memory_optimization": false,
                       "number_checkpoints": null, "synchronize_checkpoint_boundary": false, "profile": false})"),
      "recompute/full");
  EXPECT_EQ(chosen("false"), "");
  EXPECT_EQ(chosen("null"), "");
  EXPECT_EQ(chosen(R"("selective")"), "recompute/selective");
  EXPECT_EQ(chosen(R"({"type": "none"})"), "recompute/none");
}

TEST(RecomputeSection, says_what_it_takes_where_it_is_wrong) {
  const auto expect = [](const char* section, const char* part) {
    const std::string text = chosen(section);
    EXPECT_NE(text.find(part), std::string::npos) << section << "\n" << text;
  };
  expect(R"("selectiv")", "did you mean \"selective\"?");
  expect(R"({"type": "full", "params": {"fraction": 1.5}})", "fraction is 1.5, but recompute/full takes");
  expect(R"({"fracton": 0.5})", "\"fraction\"");
  expect(R"({"type": "selective", "params": {"regions": "norm"}})", "regions");
  expect(R"({"number_checkpoints": -1})", "number_checkpoints is -1");
  expect(R"({"type": "offload", "params": {"cpu_checkpointing": true}})", "cpu_checkpointing");
  expect(R"({"type": "full", "fraction": 0.5})", "move them into \"params\"");
}

}  // namespace
}  // namespace drivetrain::test
