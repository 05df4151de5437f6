// The conformance suite of model finds what it is there for: a right model passes it, and does not with any one
// mistake.
#include "support/mistakes.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

TrainedRun with_mistaken(const Value& config, int ranks) {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_MISTAKEN_DIR}, ""));
  return run_threads(config, ranks, registry);
}

TEST(ModelSuite, finds_every_mistake) {
  MistakenRuns runs;
  runs.train = with_mistaken;
  const char* const units = "builds_the_same_units_every_time";
  const char* const names = "parameters_have_names_of_their_own";
  const char* const files = "every_weight_has_a_name_in_files";
  expect_suite_finds(DRIVETRAIN_MISTAKEN_DIR "/model_mistaken.so",
                     {
                         {"numbers_its_objects", units, "a second object builds something else"},
                         {"has_two_units_of_a_name", units, "two units are called"},
                         {"costs_less_than_nothing", units, "cost of"},
                         {"shares_a_name", names, "two parameters are called"},
                         {"counts_a_parameter_more", names, "ModelFacts::parameters"},
                         {"gives_the_mean", "loss_is_a_sum_over_labels_that_count", "added up"},
                         {"forgets_a_gradient", "gradient_is_the_slope", "along a direction"},
                         {"overwrites_a_gradient", "gradients_of_micro_batches_add_up", "of two micro-batches"},
                         {"counts_its_calls", "gives_the_same_bits_twice", "computed again"},
                         {"writes_where_nothing_is_trained", "frozen_parameters_get_no_gradient", "exception"},
                         {"does_not_evaluate", "evaluates_and_generates", "in evaluation"},
                         {"gives_no_logits", "evaluates_and_generates", "logits, without labels"},
                         {"hands_on_behind_the_runtime", "stages_compose_to_the_whole", "cut before unit"},
                         {"computes_in_float32", "works_in_16_bits", "activations after unit"},
                         {"forgets_a_rule", files, "has no rule"},
                         {"miscounts_rows", files, "rows of"},
                         {"starts_absent_rows_twice", files, "start from two things"},
                         {"knows_every_format", files, "an unknown format"},
                     },
                     runs);
}

}  // namespace
}  // namespace drivetrain::test
