// The conformance suite of schedule finds what it is there for: a right schedule passes it, and does not with any one
// mistake.
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

const MistakenRuns kRuns = {.options = Value::Object{{"stages", 1}}};
const char* const kLibrary = DRIVETRAIN_MISTAKEN_DIR "/schedule_mistaken.so";

TEST(ScheduleSuite, finds_every_mistake_in_programs) {
  const char* const fit = "programs_of_all_stages_fit_together";
  expect_suite_finds(kLibrary,
                     {
                         {"misses_a_receive", fit, "comes before recv_forward"},
                         {"backward_before_forward", fit, "comes before forward"},
                         {"leaves_one_out", fit, "has no backward_input"},
                         {"does_one_twice", fit, "comes twice"},
                         {"stages_wait_for_each_other", fit, "wait for each other forever"},
                         {"one_slot_for_all", fit, "still holds"},
                         {"promises_too_few_slots", fit, "slots() promises"},
                         {"promises_too_many_slots", fit, "schedule.slots"},
                         {"backward_in_evaluation", fit, "has no business in this piece and pass"},
                         {"another_program_each_time", fit, "asked again"},
                         {"one_stage_keeps_all", fit, "wanted"},
                     },
                     kRuns);
}

TEST(ScheduleSuite, finds_every_mistake_of_cuts_and_claims) {
  const char* const cuts = "cuts_any_model";
  const char* const claims = "claims_the_axis_of_stages";
  expect_suite_finds(kLibrary,
                     {
                         {"cuts_unevenly", cuts, "largest_piece"},
                         {"cuts_an_empty_piece", cuts, "units"},
                         {"cuts_behind_the_first_unit", cuts, "first.front()"},
                         {"claims_nothing", claims, "claims().size()"},
                         {"joins_gradients", claims, "joins_gradients"},
                         {"claims_for_one_stage", claims, "one.claims()"},
                     },
                     kRuns);
}

}  // namespace
}  // namespace drivetrain::test
