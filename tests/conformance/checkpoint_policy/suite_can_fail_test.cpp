// The conformance suite of checkpoint_policy finds what it is there for: a right policy passes it, and does not with
// any one mistake.
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

TEST(CheckpointPolicySuite, finds_every_mistake) {
  const char* const ranks = "due_is_the_same_on_all_ranks";
  const char* const answers = "keep_answers_once_for_every_tag";
  const char* const tags = "keep_depends_on_the_tags_alone";
  const char* const state = "state_survives_a_stop";
  const char* const odd = "figures_that_are_no_numbers_are_none";
  expect_suite_finds(DRIVETRAIN_MISTAKEN_DIR "/checkpoint_policy_mistaken.so",
                     {
                         {"asks_its_rank", ranks, "due on rank 2"},
                         {"asks_the_number_of_ranks", ranks, "due in a run of one rank"},
                         {"counts_over_all_objects", ranks, "due "},
                         {"saves_less_after_keep", "keep_changes_nothing_of_due", "keep was called"},
                         {"answers_without_tags", answers, "answers for 0 tags"},
                         {"answers_for_the_newest_alone", answers, "answers for 60 tags"},
                         {"wants_figures_of_tags", answers, "null"},
                         {"keeps_by_turns", tags, "asked again"},
                         {"keeps_what_it_saw_best", tags, "asked after other tags"},
                         {"forgets_its_best", state, "stopped after step 2"},
                         {"forgets_its_count", state, "stopped after step 36"},
                         {"visits_its_count_if_there_is_one", state, "names that are loaded"},
                         {"counts_its_visits", state, "when it is visited"},
                         {"compares_with_no_number", odd, "some figures are null"},
                         {"wants_figures", odd, "there is no loss"},
                         {"takes_anything", "wrong_options_are_refused_by_their_names", "option free"},
                     });
}

}  // namespace
}  // namespace drivetrain::test
