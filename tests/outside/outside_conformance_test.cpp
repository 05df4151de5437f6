// The installed suites over plugins that were built outside the tree: right ones pass, a planted mistake is found and
// named, and what cannot be tested is refused with the exit codes of the contract.
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/suite.h>

#include "plugin/kinds.h"
#include "support/run_program.h"

namespace drivetrain::test {
namespace {

const std::string kStage = DRIVETRAIN_BUILD_DIR "/stage", kOutside = DRIVETRAIN_BUILD_DIR "/outside/conformance";
const std::string kMomentum = kOutside + "/lib/drivetrain/plugins/optimizer_momentum.so";

// The command, which starts the program drivetrain-conformance beside it.
Ran conformance(const std::string& words) { return run_shell(kStage + "/bin/drivetrain conformance " + words); }

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
  expect("", 2, "something is missing after \"drivetrain conformance\"");
  EXPECT_EQ(run_shell(kStage + "/bin/drivetrain-conformance").code, 2);
  expect(kMomentum + " --options '{\"lrr\": 1}'", 2, "did you mean \"lr\"?");
  expect(kMomentum + " --options '{\"lr\": \"fast\"}'", 2, "lr");
  expect(kMomentum + " --options '{\"mistake\": \"a big one\"}'", 2, "a big one");
  expect(kMomentum + " --options 3", 2, "--options wants a JSON object");
  expect(kMomentum + " --options '{'", 2, "--options");
  expect(kMomentum + " --ranks-multiple 0", 2, "--ranks-multiple");
  expect(kStage + "/lib/drivetrain/plugins/optimizer_sgd.so --options '{\"nesterov\": true}'", 2, "wants momentum");
  expect(kMomentum + " --junit /proc/none/x.xml", 8, "--junit: cannot write /proc/none/x.xml");
  expect(kMomentum + " optimizer/adamw", 3, "optimizer/momentum");
  expect(kStage + "/bin/drivetrain", 3, "drivetrain");
  expect(kStage + "/lib/drivetrain/plugins", 3, "is a folder");
  expect(kMomentum + " > /dev/full", 8, "");  // where the text is lost too
  expect(kStage + "/lib/drivetrain/plugins/data_parallel_ddp.so --ranks-multiple 5 --case several*", 1,
         "up to 4 ranks");
}

// Which sentence of the contract, and the numbers.
TEST(OutsideConformance, a_failure_says_which_sentence_of_the_contract_was_broken) {
  const std::string words = kMomentum + " --options '{\"mistake\": \"scales_the_gradient_in_place\"}'";
  const Ran lines = conformance(words);
  expect_part(lines, "[ CONTRACT ] broken: optimizer.h: \"`update` reads grad and value, and writes value and working");
  const TempFolder temporary;
  const Ran ran = conformance(words + " --case '*not_touched:every*' --json --junit " + (temporary / "out.xml"));
  EXPECT_EQ(ran.code, 1) << ran.output;
  const Value result = parse_json(ran.output, "the output");  // nothing else is printed
  EXPECT_FALSE(result.find("passed")->as_bool());
  int failed = 0;
  for (const Value& one : result.find("cases")->items()) {
    EXPECT_EQ(one.find("plugin")->as_string(), "optimizer/momentum");
    EXPECT_EQ(one.find("contract")->as_string(), "optimizer.h");
    EXPECT_EQ(one.find("passed")->as_bool(), one.find("failures")->items().empty());
    failed += one.find("passed")->as_bool() ? 0 : 1;
  }
  EXPECT_EQ(failed, 1);
  const std::string xml = temporary.text("out.xml");
  for (const char* part :
       {"<testsuite name=\"optimizer/momentum\" tests=\"2\" failures=\"1\"",
        "<testcase classname=\"optimizer/momentum\" name=\"gradients_are_not_touched\"",
        "<failure message=\"broken: optimizer.h: &quot;`update` reads", "differ, by up to", "</testsuites>"})
    EXPECT_NE(xml.find(part), std::string::npos) << "wanted " << part << " in\n" << xml;
  EXPECT_EQ(run_shell("python3 -c \"import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])\" " +
                      (temporary / "out.xml"))
                .code,
            0);
}

TEST(OutsideConformance, what_is_not_declared_is_listed_with_the_reason) {
  const std::string flash = kStage + "/lib/drivetrain/plugins/attention_flash.so";
  const Ran ran = conformance(flash + " --case '*declare*:drops*'");
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_part(ran, "[ LEFT OUT ] dropout: AttentionAbilities::dropout is false");
  const Ran listed = conformance(flash + " --list");
  expect_part(listed, "attention/flash drops_by_its_key\n    random.h: \"");
}

// Every kind has one.
TEST(OutsideConformance, there_is_a_suite_for_every_kind) {
  const Ran ran = conformance(kStage + "/lib/drivetrain/plugins/monitor_jsonl.so");
  EXPECT_EQ(ran.code, 0) << ran.output;
  for (const KindRule& rule : kind_rules()) EXPECT_FALSE(suite_of(rule.kind).empty()) << rule.kind;
}

}  // namespace
}  // namespace drivetrain::test
