// The conformance suite of dataset finds what it is there for: a right dataset passes it, and does not with any one
// mistake.
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

TEST(DatasetSuite, finds_every_mistake) {
  const char* const shape = "batches_have_their_shape";
  const char* const cut = "rows_do_not_depend_on_the_cut_of_the_batch";
  const char* const documents = "documents_have_boundaries";
  const char* const order = "steps_may_be_read_in_any_order";
  const char* const ranks = "every_rank_reads_the_same_rows";
  expect_suite_finds(DRIVETRAIN_MISTAKEN_DIR "/dataset_mistaken.so",
                     {
                         {"one_label_short", shape, "sizes"},
                         {"gives_32_bits", shape, "scalar_type"},
                         {"has_columns_in_rows", shape, "is_contiguous"},
                         {"knows_more_tokens", shape, "tokens"},
                         {"labels_below_zero", shape, "labels"},
                         {"hides_its_documents", documents, "boundaries that open() said nothing of"},
                         {"has_documents_over_rows", documents, "boundary at row 1"},
                         {"has_positions_beyond_the_row", documents, "position ids beyond their column"},
                         {"counts_documents_from_the_request", cut, "two rows of six: documents"},
                         {"counts_rows_from_the_request", cut, "two rows of six: tokens"},
                         {"counts_its_calls", order, "step 1 after step 2: tokens"},
                         {"validation_moves_on", order, "step 1 after step 2: tokens"},
                         {"gives_one_buffer_again", "batches_belong_to_the_caller", "after further reads: tokens"},
                         {"has_rows_of_its_rank", ranks, "as another rank: tokens"},
                         {"depends_on_the_micro_batch", ranks, "as another rank: tokens"},
                         {"differs_when_opened_again", "opening_again_gives_the_same_rows", "opened again"},
                         {"counts_and_shows_half", "state_survives_a_stop", "after a stop: tokens"},
                     });
}

// The contract allows it where the state is shown.
TEST(DatasetSuite, passes_a_dataset_that_shows_its_state) {
  const Plugins::Name entry = installed_plugins().open(DRIVETRAIN_MISTAKEN_DIR "/dataset_mistaken.so").at(0);
  const Subject subject{
      .kind = entry.kind, .name = entry.name, .options = Value::Object{{"mistake", "counts_and_shows_it"}}};
  for (const SuiteCase& c : suite_of(entry.kind)) EXPECT_EQ(failures_of([&] { c.run(subject); }), "") << c.name;
}

}  // namespace
}  // namespace drivetrain::test
