// State that a plugin keeps and does not show is found by the suite of its kind, for every kind that acts around the
// model: one that shows all of it passes, and does not where it forgets any one member.
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

}  // namespace
}  // namespace drivetrain::test
