// The conformance suite of optimizer finds what it is there for: a right optimizer passes it, and does not with any one
// mistake. The optimizer is the one that tests/outside builds as a plugin of its own project.
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

TEST(OptimizerSuite, finds_every_mistake) {
  const char* const state = "state_survives_a_stop";
  const char* const working = "working_copies_are_the_rounded_values";
  const char* const rates = "rates_are_those_of_the_call";
  expect_suite_finds(
      DRIVETRAIN_MISTAKEN_DIR "/optimizer_mistaken.so",
      {
          {"names_another_group", "every_parameter_has_a_group", "t.group"},
          {"counts_its_calls", "chunks_in_any_order_give_the_bits_of_one_call", "a.weight"},
          {"scales_by_the_sum_of_gradients", "parts_of_tensors_give_the_bits_of_whole_ones", "a.weight"},
          {"scales_by_the_sum_of_gradients", "parts_of_ranks_give_the_bits_of_one_process", "qkv.weight on rank"},
          {"updates_in_skipped_steps", "a_skipped_update_leaves_values_and_moments", "a.weight"},
          {"scales_the_gradient_in_place", "gradients_are_not_touched", "grad"},
          {"ignores_the_scale", "gradients_are_multiplied_by_their_scale", "a.weight"},
          {"ignores_the_rate", rates, "a.weight"},
          {"moves_the_values", rates, "has other memory"},
          {"forgets_its_state", state, "state_bytes_per_element"},
          {"promises_less_state", state, "state_bytes_per_element"},
          {"counts_its_calls", state, "a.weight"},
          {"reads_the_working_copy", working, "value"},
          {"forgets_the_working_copy", working, "working"},
          {"scales_in_the_type_of_gradients", "gradients_of_16_bits_are_read_as_the_numbers_they_are", ""},
          {"takes_what_was_not_in_init", "trainables_that_were_not_in_init_are_refused", "was not in init"},
      });
}

}  // namespace
}  // namespace drivetrain::test
