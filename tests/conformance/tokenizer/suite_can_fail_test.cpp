// The conformance suite of tokenizer finds what it is there for: a right tokenizer passes it, and does not with any one
// mistake.
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

TEST(TokenizerSuite, finds_every_mistake) {
  const char* const back = "lossless_texts_come_back";
  expect_suite_finds(DRIVETRAIN_MISTAKEN_DIR "/tokenizer_mistaken.so",
                     {
                         {"clears_ids", "appends", "encode appends"},
                         {"clears_text", "appends", "decode appends"},
                         {"gives_an_id_too_many", "ids_are_below_the_size_of_the_vocabulary", "id 255"},
                         {"drops_blanks", back, "lossless for all bytes"},
                         {"keeps_broken_bytes", "broken_texts_count_as_replaced", "counts as U+FFFD"},
                         {"counts_its_calls", "every_call_gives_the_same_ids", "asked again"},
                         {"shares_its_text", "threads_do_not_matter", "threads at once"},
                         {"bos_is_beyond", "facts_are_of_the_vocabulary", "bos is 256"},
                         {"decodes_anything", "unknown_ids_are_refused", "decode takes"},
                         {"names_anything", "names_are_those_of_tokens", "nullopt"},
                         {"recognizes_anything", "recognizes_nothing_else", "an empty folder"},
                     });
}

}  // namespace
}  // namespace drivetrain::test
