// The conformance suite of evaluation finds what it is there for: a right evaluation passes it, and does not with any
// one mistake.
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

TEST(EvaluationSuite, finds_every_mistake) {
  const char* const shape = "rows_have_their_shape";
  const char* const cut = "rows_do_not_depend_on_the_cut";
  const char* const ranks = "every_rank_has_the_same";
  const char* const numbers = "figures_are_numbers";
  expect_suite_finds(
      DRIVETRAIN_MISTAKEN_DIR "/evaluation_mistaken.so",
      {
          {"gives_32_bits", shape, "scalar_type"},
          {"one_label_short", shape, "sizes"},
          {"knows_more_tokens", shape, "tokens"},
          {"labels_below_zero", shape, "labels"},
          {"counts_nothing", shape, "labels that count"},
          {"labels_are_the_tokens", "labels_are_what_comes_next", "not the next token"},
          {"counts_its_calls", cut, "a single row: tokens"},
          {"counts_rows_from_the_request", cut, "a single row: tokens"},
          {"gives_one_buffer_again", "batches_belong_to_the_caller", "after further reads: tokens"},
          {"has_rows_of_its_rank", ranks, "as another rank: tokens"},
          {"has_more_rows_with_more_ranks", ranks, "as another rank"},
          {"is_as_long_as_the_model", "the_length_of_the_run_is_kept", "in a run whose rows are shorter"},
          {"returns_a_text", numbers, "loss is no number"},
          {"returns_infinity", numbers, "loss is not finite"},
          {"names_with_slashes", numbers, "has a slash"},
          {"error_of_nothing", numbers, "acc_stderr has no figure"},
          {"adds_scores_up", "figures_follow_from_the_scores", "of the same scores again"},
          {"takes_files_by_other_options", "files_are_taken_with_options", "options for a.txt"},
      });
}

}  // namespace
}  // namespace drivetrain::test
