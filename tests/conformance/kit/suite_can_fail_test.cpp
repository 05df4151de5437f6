// State that a plugin keeps and does not show is found by the suite of its kind, for every kind that acts around the
// model: one that shows all of it passes, and does not where it forgets any one member.
#include <drivetrain/testkit/kit/promises.h>
#include <drivetrain/testkit/kit/stop.h>

#include <algorithm>

#include "support/mistakes.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

TrainedRun with_forgetful(const Value& config, int ranks) {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_MISTAKEN_DIR}, ""));
  return run_threads(config, ranks, registry);
}

TEST(StateSurvivesAStop, finds_a_member_that_is_forgotten) {
  const auto entries = installed_plugins().open(DRIVETRAIN_MISTAKEN_DIR "/kit_mistaken.so");
  ASSERT_EQ(entries.size(), 6u);
  for (const Plugins::Name& entry : entries) {
    SCOPED_TRACE(entry.text());
    const SuiteCase stop = case_of(entry.kind, "state_survives_a_stop");
    Subject subject{.kind = entry.kind, .name = entry.name, .train = with_forgetful};
    EXPECT_EQ(failures_of([&] { stop.run(subject); }), "") << "nothing is forgotten";
    // The code is the same in all of them: one forgets each member in turn, the others the last.
    for (const char* member : {"count", "pace", "sum"}) {
      if (&entry != &entries.front() && member != std::string("sum")) continue;
      subject.options.set("forgets", member);
      expect_found({member, "state_survives_a_stop", "after a stop"}, failures_of([&] { stop.run(subject); }));
    }
  }
}

SuiteCase forgetful_case(const char* name) {
  installed_plugins().open(DRIVETRAIN_MISTAKEN_DIR "/kit_mistaken.so");
  return case_of("strategy", name);
}
Subject forgetful(const char* option) {
  at::set_num_threads(1);
  return {.kind = "strategy", .name = "forgetful", .options = Value::Object{{option, true}}, .train = train_by_threads};
}

TEST(SameBitsTwice, finds_a_strategy_that_counts_its_objects) {
  const SuiteCase twice = forgetful_case("gives_the_same_bits_twice");
  EXPECT_EQ(failures_of([&] { twice.run({.kind = "strategy", .name = "forgetful", .train = with_forgetful}); }), "");
  expect_found({"counts_objects", "gives_the_same_bits_twice", "the final weights differ in a second run"},
               failures_of([&] { twice.run(forgetful("counts_objects")); }));
}

// Beside a strategy that keeps the model's own weights out of the final folder (Strategy::exports_model): the folder
// of the adapter is compared. The embedding is trained whole, since the planted plugin adds to its gradient.
TEST(FinalWeights, are_those_that_the_run_writes_whatever_they_are) {
  installed_plugins().open(DRIVETRAIN_MISTAKEN_DIR "/kit_mistaken.so");
  at::set_num_threads(1);
  const auto failures = [](const char* forgets) {
    Value sections = parse_json(R"({"lora": {"modules_to_save": ["wte"]}})", "test");
    sections.set("strategy", Value::Object{{"type", "forgetful"}, {"params", Value::Object{{"forgets", forgets}}}});
    return failures_of([&] { expect_same_bits_after_a_stop(sections, 1, with_forgetful); });
  };
  EXPECT_EQ(failures("nothing"), "");
  expect_found({"sum", "state_survives_a_stop", "the final weights differ after a stop, in adapter_model.safetensors"},
               failures("sum"));
}

// What a plugin refuses in words is no failure, but told: it is tried beside what it takes.
TEST(Refusals, are_told_and_the_rest_is_tried) {
  const auto told = [](const char* name, const char* option) {
    const SuiteCase tried = forgetful_case(name);
    take_left_out();
    EXPECT_EQ(failures_of([&] { tried.run(forgetful(option)); }), "") << name << " " << option;
    return take_left_out();
  };
  const std::vector<LeftOut> experts = {{"a model without experts",
                                         "it refuses one: strategy/forgetful: it wants a "
                                         "model with experts"}};
  for (const char* name : {"gives_the_same_bits_twice", "state_survives_a_stop"})
    EXPECT_EQ(told(name, "wants_experts"), experts);
  EXPECT_EQ(told("decorators_compose", "refuses_adapters"),
            (std::vector<LeftOut>{{"adapters beside it",
                                   "it refuses them: in strategy/forgetful, hook attach: "
                                   "embedding.word.term_a is an adapter's"}}));
}

// Every suite gives a plugin the maker of others (Services::plugins). What this one does there is not asked.
TEST(Suites, give_plugins_a_maker_of_others) {
  at::set_num_threads(1);
  for (const Plugins::Name& entry : installed_plugins().open(DRIVETRAIN_MISTAKEN_DIR "/kit_mistaken.so")) {
    const SuiteCase first = suite_of(entry.kind).front();
    const Subject subject{.kind = entry.kind, .name = entry.name, .train = with_forgetful};
    const std::string failures = failures_of([&] { first.run(subject); });
    EXPECT_EQ(failures.find("nobody makes plugins"), std::string::npos) << entry.text() << " " << first.name << "\n"
                                                                        << failures;
  }
}

// A case without a sentence of the contract says what is wrong and not why. That the sentences are there is checked in
// tests/static/promises.py.
TEST(Promises, every_case_has_a_sentence_of_the_contract) {
  for (const std::string& kind : kinds_with_a_suite()) {
    std::vector<std::string> cases;
    for (const SuiteCase& c : suite_of(kind)) {
      cases.push_back(c.name);
      EXPECT_NE(promise_of(kind, c.name).sentence, "") << kind << ": " << c.name << " has no line in promises.txt";
    }
    for (const std::string& name : promised_cases(kind))
      EXPECT_TRUE(std::count(cases.begin(), cases.end(), name)) << kind << ": " << name << " is no case";
  }
}

}  // namespace
}  // namespace drivetrain::test
