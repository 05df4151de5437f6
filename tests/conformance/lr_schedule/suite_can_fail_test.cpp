// The conformance suite of lr_schedule finds what it is there for: a right schedule passes it, and does not with any
// one mistake.
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

TEST(LrScheduleSuite, finds_every_mistake) {
  const char* const progress = "depends_on_nothing_but_progress";
  const char* const finite = "rates_are_finite_and_not_negative";
  const char* const rest = "weight_decay_and_momentum_stay_numbers";
  expect_suite_finds(DRIVETRAIN_MISTAKEN_DIR "/lr_schedule_mistaken.so",
                     {
                         {"counts_its_calls", progress, "asked again"},
                         {"gives_all_groups_of_a_step_one_rate", progress, "asked again"},
                         {"decays_by_the_highest_step", progress, "asked again"},
                         {"divides_by_the_length_of_the_run", finite, "has the rate"},
                         {"falls_below_zero", finite, "has the rate -"},
                         {"negative_momentum", rest, "-0.75"},
                         {"decays_more_with_every_call", rest, "weight_decay"},
                         {"counts_and_shows_half", "state_survives_a_stop", "stopped before 1"},
                     });
}

// The contract allows it where the state is shown.
TEST(LrScheduleSuite, passes_a_schedule_that_shows_its_state) {
  const Plugins::Name entry = installed_plugins().open(DRIVETRAIN_MISTAKEN_DIR "/lr_schedule_mistaken.so").at(0);
  const Subject subject{
      .kind = entry.kind, .name = entry.name, .options = Value::Object{{"mistake", "counts_and_shows_it"}}};
  for (const SuiteCase& c : suite_of(entry.kind)) EXPECT_EQ(failures_of([&] { c.run(subject); }), "") << c.name;
}

}  // namespace
}  // namespace drivetrain::test
