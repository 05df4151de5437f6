#include <drivetrain/testkit/communicator/suite.h>

#include <drivetrain/testkit/communicator/works.h>
#include <drivetrain/testkit/kit/plugins.h>

namespace drivetrain::test {
namespace {

// Until it is gone, ranks are threads with the subject's communicator. What a case asks for comes before the subject's
// own options.
struct ChosenCommunicator {
  explicit ChosenCommunicator(const Subject& subject) : before(communicator_maker) {
    communicator_maker = [subject](const std::string& json, const Services& services) {
      Value options = subject.options;
      const Value asked = parse_json(json, "case");
      for (const Value::Member& m : asked.members()) options.set(m.key, m.value);
      return installed_plugins().make<Communicator>(subject.kind, subject.name, options, services);
    };
  }
  ~ChosenCommunicator() { communicator_maker = before; }
  const CommunicatorMaker before;
};

using CommunicatorCase = void (*)();
constexpr std::pair<const char*, CommunicatorCase> kCommunicatorCases[] = {
    {"collectives_match_a_local_computation", [] { collectives_match_a_local_computation(); }},
    {"large_collectives_match_a_local_computation", [] { large_collectives_match_a_local_computation(); }},
    {"sums_follow_the_fixed_tree", [] { sums_follow_the_fixed_tree(); }},
    {"overlapping_groups_do_not_disturb_each_other", overlapping_groups_do_not_disturb_each_other},
    {"works_may_be_waited_for_in_any_order", [] { works_may_be_waited_for_in_any_order(); }},
    {"calls_take_effect_in_the_order_in_which_they_were_made",
     [] { calls_take_effect_in_the_order_in_which_they_were_made(); }},
    {"memory_that_exists_once_holds_what_each_rank_wrote",
     [] { memory_that_exists_once_holds_what_each_rank_wrote(); }},
    {"waiting_anywhere_drives_the_works_of_all_groups", waiting_anywhere_drives_the_works_of_all_groups},
    {"abort_ends_a_wait_everywhere", abort_ends_a_wait_everywhere},
    {"different_calls_are_named", different_calls_are_named},
    {"counts_that_differ_are_named", counts_that_differ_are_named},
    {"wrong_counts_are_refused", wrong_counts_are_refused},
    {"wrong_shapes_are_refused", wrong_shapes_are_refused},
    {"a_rank_that_leaves_is_named", a_rank_that_leaves_is_named},
    {"a_late_rank_is_named_after_the_timeout", a_late_rank_is_named_after_the_timeout},
};

}  // namespace

Suite communicator_suite() {
  Suite suite;
  for (const auto& [name, run] : kCommunicatorCases)
    suite.push_back({name, [run = run](const Subject& subject) {
                       const ChosenCommunicator chosen(subject);
                       run();
                     }});
  return suite;
}

void check_ranks_can_be_threads(const Subject& subject) {
  const ChosenCommunicator chosen(subject);
  const std::vector<std::string> errors = run_threads(2, [](Rank& rank) { rank.world(); });
  if (errors[0].empty() || errors[1].empty()) return;
  throw fail(ErrorCode::plugin, subject.kind, "/", subject.name,
             " cannot be tested here: the suite's ranks are threads of one process, and it refuses the first two of "
             "them:\n   ",
             errors[0],
             "\n   a test of the plugin's own can call the cases with ranks of another kind "
             "(<drivetrain/testkit/communicator/suite.h>)");
}

}  // namespace drivetrain::test
