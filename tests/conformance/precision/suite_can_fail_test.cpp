// The conformance suite of precision finds what it is there for: a right precision passes the cases, and does not with
// a mistake.
#include "support/mistakes.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

TrainedRun with_mistakes(const Value& config, int ranks) {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_MISTAKEN_DIR}, ""));
  return run_threads(config, ranks, registry);
}

// The right one runs the cases that have a mistake: the whole suite takes long, and bf16 passes it.
TEST(PrecisionSuite, finds_every_mistake) {
  const char* const bits = "gives_the_same_bits_twice";
  expect_suite_finds(DRIVETRAIN_MISTAKEN_DIR "/precision_mistaken.so",
                     {
                         {"masters_of_16_bits", "masters_lose_nothing", "Float"},
                         {"keeps_exponents_only", "follows_float32", "step"},
                         {"scales_out_of_range", "follows_float32", "step"},
                         {"draws_its_roundings", bits, "figure(second"},
                     },
                     {.train = with_mistakes, .right_runs_cases_of_mistakes_only = true});
}

}  // namespace
}  // namespace drivetrain::test
