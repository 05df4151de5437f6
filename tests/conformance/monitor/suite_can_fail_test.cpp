// The conformance suite of monitor finds what it is there for: a right monitor passes it, and does not with any one
// mistake.
#include "support/mistakes.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

TrainedRun with_mistaken(const Value& config, int ranks) {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_MISTAKEN_DIR}, ""));
  return run_threads(config, ranks, registry);
}

TEST(MonitorSuite, finds_every_mistake) {
  MistakenRuns runs;
  runs.train = with_mistaken;
  expect_suite_finds(DRIVETRAIN_MISTAKEN_DIR "/monitor_mistaken.so",
                     {
                         {"wants_every_figure", "leaves_alone_what_it_does_not_know", "exception"},
                         {"refuses_other_events", "leaves_alone_what_it_does_not_know", "exception"},
                         {"knows_one_reason", "takes_the_events_of_a_run", "exception"},
                         {"writes_when_it_is_destroyed", "all_is_written_when_the_run_ends", "after run_end"},
                         {"forgets_its_count", "state_survives_a_stop", "went on"},
                         {"begins_anew", "state_survives_a_stop", "went on"},
                         {"hides_a_full_disk", "names_a_file_that_cannot_be_written", "on a disk that becomes full"},
                         {"names_no_file", "names_a_file_that_cannot_be_written", "names"},
                         {"empties_the_figures", "changes_no_bit_of_a_run", "differ"},
                     },
                     runs);
}

}  // namespace
}  // namespace drivetrain::test
