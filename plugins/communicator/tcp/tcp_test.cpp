// communicator/tcp: what it promises beyond the suite of its kind: processes, long messages, addresses.
#include <ATen/ops/full.h>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct ForkedRanks {
  ForkedRanks() { runner = run_forked; }
  ~ForkedRanks() { runner = run_threads; }
};

TEST(CommunicatorTcp, works_between_processes) {
  const ForkedRanks forked;
  check_collectives(2, {100001}, {at::kFloat, at::kBFloat16});
  check_collectives(5, {3, 20001}, {at::kFloat});
}

TEST(CommunicatorTcp, works_between_processes_may_be_waited_for_in_any_order) {
  const ForkedRanks forked;
  works_may_be_waited_for_in_any_order({2, 5});
  calls_take_effect_in_the_order_in_which_they_were_made({3, 4});
  sums_follow_the_fixed_tree(4);
}

TEST(CommunicatorTcp, pieces_of_any_size_give_the_same) {
  expect_no_errors(run_threads(
      3,
      [](Rank& r) {
        const GroupPtr world = r.world();
        for (const int64_t n : {1, 300, 70001}) {
          const Collectives c{r, *world, at::kFloat, Place::own};
          c.sums(n);
          c.moves(n);
          c.exchanges(n);
          c.messages(n);
        }
      },
      R"({"timeout_s": 20, "piece_bytes": 64})"));
}

// A long message stays with its sender until it is asked for; meanwhile others of the same connection pass it.
TEST(CommunicatorTcp, messages_that_nobody_asks_for_yet_keep_no_other_group) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world(), other = r.group({0, 1}, "other");
    const int64_t n = 3 << 20;
    const Collectives c{r, *world, at::kInt, Place::own};
    const auto value = [](int64_t message) { return [message](int64_t i) { return number(message, i, at::kInt); }; };
    const at::Tensor messages[] = {c.filled(n, value(0)), c.filled(5, value(1)), c.filled(n, value(2))};
    std::vector<WorkPtr> works;
    if (r.rank() == 0)
      for (const at::Tensor& message : messages) works.push_back(world->send(message, 1));
    other->barrier();
    at::Tensor sum = c.filled(n, value(r.rank()));
    other->all_reduce(sum)->wait();
    for (int64_t m = 0; m < 3 && r.rank() == 1; ++m) {
      at::Tensor got = c.empty(messages[m].numel());
      world->recv(got, 0)->wait();
      c.expect(got, "recv", value(m));
    }
    for (const WorkPtr& work : works) work->wait();
  }));
}

// Over the loopback of this host, chosen in other words.
TEST(CommunicatorTcp, the_address_is_chosen_by_interface_or_network) {
  for (const char* interface : {"lo", "127.0.0.0/8", "::1/128"}) {
    const std::string options = concat(R"({"timeout_s": 20, "interface": ")", interface, "\"}");
    expect_no_errors(run_threads(
        2,
        [](Rank& r) {
          Collectives{r, *r.world(), at::kFloat, Place::own}.sums(3);
        },
        options));
  }
}

TEST(CommunicatorTcp, an_interface_that_is_not_there_is_refused_with_those_that_are) {
  for (const char* interface : {"nosuch0", "203.0.113.0/24"}) {
    const auto errors = run_threads(
        2, [](Rank& r) { r.world(); }, concat(R"({"timeout_s": 20, "interface": ")", interface, "\"}"));
    for (const std::string& error : errors) {
      expect_part(error, concat("\"interface\" is \"", interface, "\""));
      expect_part(error, "127.0.0.1 (lo)");
    }
  }
}

}  // namespace
}  // namespace drivetrain
