// The conformance suite of attention finds what it is there for: a right attention passes it, and does not with any one
// mistake.
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

const char* const kLibrary = DRIVETRAIN_MISTAKEN_DIR "/attention_mistaken.so";

TEST(AttentionSuite, finds_every_mistake) {
  const char* const formula = "computes_the_formula_and_refuses_what_it_does_not_declare";
  const char* const merged = "blocks_of_keys_can_be_merged";
  expect_suite_finds(kLibrary, {
                                   {"another_scale", formula, "out element"},
                                   {"sees_the_next_token", formula, "causal, Double"},
                                   {"ignores_the_window", formula, "window, Double"},
                                   {"window_of_one_more", formula, "window, Double"},
                                   {"no_softcap", formula, "softcap, Double"},
                                   {"softcap_behind_the_mask", formula, "softcap, Double"},
                                   {"no_gradient_of_the_softcap", formula, "dq element"},
                                   {"no_gradient_of_the_softcap", "gradient_is_the_slope", "slope"},
                                   {"ignores_the_offset", formula, "the next token after its past"},
                                   {"one_long_sequence", formula, "several sequences, Double"},
                                   {"all_rows_see_the_first", formula, "causal, Double"},
                                   {"another_group_of_heads", formula, "odd head size, grouped"},
                                   {"no_gradient_of_k", formula, "dk element"},
                                   {"no_gradient_of_k", "gradient_is_the_slope", "slope"},
                                   {"refuses_what_it_declares", formula, "no offset"},
                                   {"refuses_without_a_name", formula, "no window"},
                                   {"uses_its_own_lse", merged, "dq element"},
                                   {"remembers_the_last_call", merged, "dq element"},
                                   {"differs_from_call_to_call", "gives_the_same_bits_twice", "out"},
                                   {"keeps_its_inputs", "works_under_autograd", "use_count"},
                                   {"takes_any_argument", "refuses_wrong_arguments_by_name", ""},
                               });
}

TEST(AttentionSuite, finds_every_mistake_of_dropout) {
  const char* const dropout = "drops_by_its_key";
  expect_suite_finds(kLibrary, {
                                   {"drops_nothing", dropout, "nothing was dropped"},
                                   {"drops_without_a_factor", dropout, "mean"},
                                   {"drops_others_in_backward", dropout, "slope"},
                                   {"drops_by_row_of_the_batch", dropout, "rows 2 and 3"},
                                   {"drops_the_same_in_every_step", dropout, "another step"},
                               });
}

}  // namespace
}  // namespace drivetrain::test
