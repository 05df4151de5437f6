// The installed suites over plugins that were built outside the tree: right ones pass, a planted mistake is found and
// named, and what cannot be tested is refused with the exit codes of the contract.
#include <gtest/gtest.h>

#include "support/run_program.h"

namespace drivetrain::test {
namespace {

const std::string kStage = DRIVETRAIN_BUILD_DIR "/stage", kOutside = DRIVETRAIN_BUILD_DIR "/outside/conformance";
const std::string kMomentum = kOutside + "/lib/drivetrain/plugins/optimizer_momentum.so";

Ran conformance(const std::string& words) { return run_shell(kStage + "/bin/drivetrain-conformance " + words); }

void expect_part(const Ran& ran, const std::string& part) {
  EXPECT_NE(ran.output.find(part), std::string::npos) << "wanted " << part << " in\n" << ran.output;
}

// An outside optimizer, and plugins of the tree that were built as outside ones.
TEST(OutsideConformance, tests_of_the_outside_project_pass) {
  const Ran ran = run_shell("ctest --test-dir " + kOutside + " --output-on-failure");
  EXPECT_EQ(ran.code, 0) << ran.output;
  for (const char* test : {"conformance.optimizer.momentum", "conformance.attention.standard",
                           "conformance.lr_schedule.constant", "100% tests passed"})
    expect_part(ran, test);
}

// No case could say anything about its collectives, so it is refused once.
TEST(OutsideConformance, a_communicator_with_ranks_of_its_own_is_refused_once) {
  for (const std::string name : {"mpi", "nccl"}) {
    const Ran ran = conformance(kStage + "/lib/drivetrain/plugins/communicator_" + name + ".so");
    EXPECT_EQ(ran.code, 3) << ran.output;
    expect_part(ran, "communicator/" + name + " cannot be tested here");
    EXPECT_EQ(ran.output.find("[ RUN"), std::string::npos) << ran.output;
  }
}

// A process that ended well would look like a plugin that passed.
TEST(OutsideConformance, a_plugin_that_ends_the_process_does_not_pass) {
  const Ran ran = conformance(DRIVETRAIN_BUILD_DIR
                              "/tests/misdeeds/lib/strategy_misdeed.so lr_schedule/misdeed "
                              "--options '{\"in\": \"at\", \"deed\": \"exit\"}'");
  EXPECT_EQ(ran.code, 1) << ran.output;
  expect_part(ran, "exit() was called with code 0");
}

struct Mistake {
  const char* option;
  const char* found_by;
};
constexpr Mistake kMistakes[] = {
    {"updates_in_skipped_steps", "a_skipped_update_leaves_values_and_moments"},
    {"scales_the_gradient_in_place", "gradients_are_not_touched"},
    {"forgets_its_state", "state_survives_a_stop"},
};

TEST(OutsideConformance, a_mistake_is_named_by_the_case_that_finds_it) {
  for (const auto& [option, found_by] : kMistakes) {
    const Ran ran = conformance(kMomentum + " --options '{\"mistake\": \"" + option + "\"}'");
    EXPECT_EQ(ran.code, 1) << ran.output;
    expect_part(ran, std::string("[  FAILED  ] optimizer/momentum.") + found_by);
    expect_part(ran, "[       OK ] optimizer/momentum.every_parameter_has_a_group");
  }
}

TEST(OutsideConformance, one_case_can_be_asked_for) {
  const Ran ran = conformance(kMomentum + " optimizer/momentum --case '*skipped*'");
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_part(ran, "1 test from 1 test suite ran");
  EXPECT_EQ(conformance(kMomentum + " --case nothing").code, 2);
  expect_part(conformance(kMomentum + " --list"), "optimizer/momentum gradients_are_not_touched\n");
  EXPECT_EQ(conformance(kMomentum + " --list --case nothing").code, 2);
}

TEST(OutsideConformance, what_cannot_be_tested_is_refused) {
  const auto expect = [](const std::string& words, int code, const std::string& part) {
    const Ran ran = conformance(words);
    EXPECT_EQ(ran.code, code) << ran.output;
    expect_part(ran, part);
  };
  expect("", 2, "usage: drivetrain-conformance PLUGIN.so");
  expect(kMomentum + " --options '{\"lrr\": 1}'", 2, "lrr");
  expect(kMomentum + " optimizer/adamw", 3, "optimizer/momentum");
  expect(kStage + "/bin/drivetrain", 3, "drivetrain");
  expect(kStage + "/lib/drivetrain/plugins", 3, "is a folder");
  expect(kMomentum + " > /dev/full", 8, "");  // where the text is lost too
  expect(kStage + "/lib/drivetrain/plugins/data_parallel_ddp.so --ranks-multiple 5 --case several*", 1,
         "up to 4 ranks");
  expect(kStage + "/lib/drivetrain/plugins/monitor_jsonl.so", 3, "there is no suite for this kind");
}

}  // namespace
}  // namespace drivetrain::test
