// State that a plugin keeps and does not show is found by the suite of its kind, for every kind that acts around the
// model: one that shows all of it passes, and does not where it forgets any one member.
#include <drivetrain/testkit/kit/promises.h>

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
