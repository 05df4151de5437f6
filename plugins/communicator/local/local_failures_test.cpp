// communicator/local: ranks that die, leave, are late or call something else, with calls made and not waited for.
#include <csignal>
#include <sstream>

#include <drivetrain/testkit/communicator/failures.h>
#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"
#include "support/waiting.h"

namespace drivetrain::test {
namespace {

// Only what happens to a rank ends a wait.
const std::string kPatient = concat(R"({"timeout_s": )", kNoTimeout, "}");

void expect_death_is_named(const std::function<void()>& die) {
  const auto ended = run_processes(
      3,
      [&](Rank& r) {
        const GroupPtr world = r.world();
        at::Tensor t = at::empty({100}, at::kFloat);
        for (int step = 0; step < 5; ++step) world->all_reduce(t)->wait();
        come_last(r, 1);
        if (r.rank() == 1) die();
        world->all_reduce(t)->wait();
      },
      kPatient);
  for (const size_t r : {0, 2}) {
    expect_part(ended[r].error, concat("rank 1 (pid ", ended[1].pid, ") died"));
    expect_part(ended[r].error, "all_reduce #6 of group \"world\"");
  }
}

TEST(CommunicatorLocalFailures, a_killed_process_is_named) {
  expect_death_is_named([] { kill(getpid(), SIGKILL); });
}

TEST(CommunicatorLocalFailures, a_process_that_just_exits_is_named) {
  expect_death_is_named([] { _exit(3); });
}

// However far the survivors are in windows, counters and queues.
TEST(CommunicatorLocalFailures, a_process_killed_at_any_moment_is_named) {
  for (int64_t round = 0; round < 10; ++round) {
    const auto ended = run_processes(
        3,
        [&](Rank& r) {
          const GroupPtr world = r.world();
          at::Tensor t = at::empty({2 << 20}, at::kFloat);
          if (r.rank() == 1)
            std::thread([&] {
              let_pass(1e-3 + 5.437e-3 * static_cast<double>(round));  // Waits: at moments that differ
              kill(getpid(), SIGKILL);
            }).detach();
          for (;;) world->all_reduce(t)->wait();
        },
        kPatient);
    for (const size_t r : {0, 2}) expect_part(ended[r].error, concat("rank 1 (pid ", ended[1].pid, ") died"));
  }
}

TEST(CommunicatorLocalFailures, a_rank_that_spins_for_ever_learns_of_a_death) {
  const auto ended = run_processes(
      2,
      [](Rank& r) {
        const GroupPtr world = r.world();
        if (r.rank() == 1) kill(getpid(), SIGKILL);
        world->barrier();
      },
      concat(R"({"timeout_s": )", kNoTimeout, R"(, "spin": 1000000000})"));
  expect_part(ended[0].error, concat("rank 1 (pid ", ended[1].pid, ") died"));
}

TEST(CommunicatorLocalFailures, a_rank_may_leave_while_others_make_a_group_without_it) {
  expect_no_errors(run_threads(3, [](Rank& r) {
    r.world();
    if (r.rank() == 2) return;
    if (r.rank() == 0) let_pass(0.1);  // Waits: rank 1 waits for it
    r.group({0, 1}, "pair")->barrier();
  }));
}

// The second send waits for the first, which waits for what rank 2 does not send; rank 1 keeps nobody.
TEST(CommunicatorLocalFailures, who_keeps_the_message_in_front_is_named) {
  Moment over;
  const auto errors = run_threads(
      3,
      [&](Rank& r) {
        const GroupPtr world = r.world();
        if (r.rank() != 0) return over.wait();
        const Moment::AtEnd at_end{over};
        const at::Tensor passed_on = at::empty({3}, at::kFloat);
        const WorkPtr works[] = {world->recv(passed_on, 2), world->send(passed_on, 1),
                                 world->send(at::empty({5}, at::kFloat), 1)};
        works[2]->wait();
      },
      R"({"timeout_s": 0.3})");
  expect_part(errors[0], "rank 2 did not reach the other end of the recv of 3 Float");
}

TEST(CommunicatorLocalFailures, a_receiver_learns_that_the_sender_died) {
  const auto ended = run_processes(2, [](Rank& r) {
    const GroupPtr world = r.world();
    if (r.rank() == 1) _exit(0);
    world->recv(at::empty({3}, at::kFloat), 1)->wait();
  });
  expect_part(ended[0].error, concat("rank 1 (pid ", ended[1].pid, ") died"));
}

struct Named {
  const char* text;
  bool message;
  std::function<WorkPtr(const Collectives&, int64_t n)> call;
};
const std::vector<Named>& works_that_need_rank_1() {
  static const std::vector<Named> list = {
      {"all_reduce", false, [](const Collectives& c, int64_t n) { return c.g.all_reduce(c.empty(n)); }},
      {"all_gather", false, [](const Collectives& c, int64_t n) { return c.g.all_gather(c.empty(2 * n), c.empty(n)); }},
      {"reduce_scatter", false,
       [](const Collectives& c, int64_t n) { return c.g.reduce_scatter(c.empty(n), c.empty(2 * n)); }},
      {"all_to_all", false,
       [](const Collectives& c, int64_t n) { return c.g.all_to_all(c.empty(2 * n), c.empty(2 * n)); }},
      {"broadcast", false, [](const Collectives& c, int64_t n) { return c.g.broadcast(c.empty(n), 0); }},
      {"recv", true, [](const Collectives& c, int64_t n) { return c.g.recv(c.empty(n), 1); }},
      // More than is on its way without the receiver.
      {"send", true, [](const Collectives& c, int64_t n) { return c.g.send(c.empty(3 * n), 1); }}};
  return list;
}

// A communicator of its own for each call, since a death ends all calls of one. Either rank 0 has made the calls before
// rank 1 dies, or rank 1 made them and died before rank 0 did, so that nobody did its part.
void expect_death_ends_every_work(int64_t first) {
  const auto ended = run_processes(2, [&](Rank& r) {
    std::vector<std::unique_ptr<Rank>> others;
    std::vector<GroupPtr> groups;
    const auto make_group = [&] {
      others.push_back(std::make_unique<Rank>(r.rank(), 2, r.services.store, usual_options));
      groups.push_back(others.back()->world());
    };
    std::vector<std::pair<WorkPtr, std::string>> works;
    const auto call = [&](size_t i) {
      const size_t kinds = works_that_need_rank_1().size();
      const Collectives c{*others[i], *groups[i], at::kFloat, i < kinds ? Place::own : Place::shared};
      const Named& named = works_that_need_rank_1()[i % kinds];
      if (r.rank() == 0 || !named.message) works.emplace_back(named.call(c, 1000003), named.text);
    };
    const size_t count = 2 * works_that_need_rank_1().size();
    for (size_t i = 0; i < count + 2; ++i) make_group();
    const GroupPtr world = r.world();
    for (size_t i = 0; i < count && r.rank() == first; ++i) call(i);
    if (r.rank() == 1) kill(getpid(), SIGKILL);
    std::string errors = error_of([&] { world->barrier(); }) + "\n";
    for (size_t i = 0; i < count && first == 1; ++i) call(i);
    errors += error_of([&] { groups[count]->allocate_once(10, at::kFloat); }) + "\n";
    errors += error_of([&] { others[count + 1]->group({0, 1}, "again"); }) + "\n";
    for (const auto& [work, text] : works) errors += text + ": " + error_of([&] { work->wait(); }) + "\n";
    throw std::runtime_error(errors);
  });
  std::istringstream lines(ended[0].error);
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    expect_part(line, concat("rank 1 (pid ", ended[1].pid, ") died"));
  EXPECT_EQ(count, 17) << ended[0].error;
}

TEST(CommunicatorLocalFailures, works_of_a_rank_that_died_before_it_called_end_with_its_name) {
  expect_death_ends_every_work(0);
}

TEST(CommunicatorLocalFailures, works_of_a_rank_that_called_and_died_end_with_its_name) {
  expect_death_ends_every_work(1);
}

TEST(CommunicatorLocalFailures, a_rank_that_leaves_without_waiting_is_named) {
  const auto errors = run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    const WorkPtr work = world->all_reduce(world->allocate(100, at::kFloat));
    if (r.rank() == 0) let_pass(0.05);  // Waits: rank 1 has left
    if (r.rank() == 0) world->all_reduce(world->allocate(10, at::kFloat))->wait();
  });
  EXPECT_EQ(errors[1], "");
  expect_part(errors[0], "closed its communicator");
}

TEST(CommunicatorLocalFailures, a_rank_that_does_not_come_back_to_a_call_it_made_is_named) {
  Moment called, over;
  const auto errors = run_threads(
      2,
      [&](Rank& r) {
        const GroupPtr world = r.world();
        const at::Tensor t = world->allocate(100, at::kFloat);
        if (r.rank() == 0) called.wait();
        const WorkPtr work = world->all_reduce(t);
        if (r.rank() == 1) called.come(), over.wait();
        const Moment::AtEnd at_end{over};
        work->wait();
      },
      R"({"timeout_s": 0.3})");
  expect_part(errors[0], "rank 1 posted all_reduce #1 of group \"world\" but did not come back to do its part of it");
}

TEST(CommunicatorLocalFailures, an_abort_ends_works_that_were_not_waited_for) {
  const auto errors = run_threads(3, [](Rank& r) {
    const GroupPtr world = r.world();
    std::vector<WorkPtr> works;
    if (r.rank() != 2)
      for (int64_t i = 0; i < 100; ++i) works.push_back(world->all_reduce(at::empty({1000}, at::kFloat)));
    if (r.rank() == 2) r.communicator->abort("disk full");
    for (const WorkPtr& work : works) expect_part(error_of([&] { work->wait(); }), "rank 2 aborted: disk full");
  });
  for (const std::string& error : errors)
    EXPECT_TRUE(error.empty() || error.find("disk full") != std::string::npos) << error;
}

TEST(CommunicatorLocalFailures, a_rank_that_never_makes_the_group_is_named) {
  Moment over;
  const auto errors = run_threads(
      2,
      [&](Rank& r) {
        if (r.rank() == 1) return over.wait();
        const Moment::AtEnd at_end{over};
        r.world();
      },
      R"({"timeout_s": 0.3})");
  expect_part(errors[0], "rank 1 did not reach make_group of group \"world\" within 0.3 s (rank 0 did)");
}

TEST(CommunicatorLocalFailures, a_rank_in_another_kind_of_call_is_shown) {
  const auto errors = run_threads(
      2,
      [](Rank& r) {
        const GroupPtr world = r.world();
        if (r.rank() == 0)
          world->barrier();
        else
          world->recv(at::empty({3}, at::kFloat), 0)->wait();
      },
      concat(R"({"timeout_s": )", scaled(1), "}"));
  EXPECT_TRUE(errors[0].find("it is in ") != std::string::npos || errors[1].find("it is in ") != std::string::npos)
      << errors[0] << errors[1];
}

// In the middle of a call, which neither rank has done then. Rank 1 waits as long as it takes until it is stopped.
TEST(CommunicatorLocalFailures, a_rank_that_is_stopped_is_named_with_the_call_it_is_in) {
  const auto ended = run_processes(
      2,
      [](Rank& both) {
        both.world()->barrier();
        Rank r(both.rank(), 2, both.services.store, both.rank() == 0 ? R"({"timeout_s": 2})" : kPatient);
        const GroupPtr world = r.world();
        const at::Tensor t = at::empty({8 << 20}, at::kFloat);
        if (r.rank() == 1) {
          const WorkPtr work = world->all_reduce(t);
          r.services.store.set("pid", std::to_string(getpid()));
          work->wait();
        }
        const pid_t peer = std::stoi(r.services.store.get("pid", deadline_s()));
        if (!comes_to_wait(peer)) throw std::runtime_error("it does not wait");
        kill(peer, SIGSTOP);
        const std::string error = error_of([&] { world->all_reduce(t)->wait(); });
        kill(peer, SIGKILL);
        throw std::runtime_error(error);
      },
      kPatient);
  expect_part(ended[0].error, "did not come back to do its part of it within 2 s (it is in all_reduce); rank 1 (pid");
  expect_part(ended[0].error, ") is stopped by a signal");
}

TEST(CommunicatorLocalFailures, a_receive_that_does_not_fit_the_send_is_refused) {
  const auto errors = run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    if (r.rank() == 0)
      world->send(at::empty({3}, at::kFloat), 1)->wait();
    else
      world->recv(at::empty({4}, at::kFloat), 0)->wait();
    world->barrier();
  });
  for (const std::string& error : errors) expect_part(error, "rank 0 sent 3 Float where rank 1 called recv of 4 Float");
}

TEST(CommunicatorLocalFailures, after_a_failure_every_call_says_the_cause) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    r.communicator->abort("first");
    r.communicator->abort("second");
    for (int i = 0; i < 2; ++i) expect_part(error_of([&] { world->barrier(); }), "aborted: first");
  }));
}

}  // namespace
}  // namespace drivetrain::test
