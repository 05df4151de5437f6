// communicator/nccl over stand-ins for CUDA and NCCL: the suite of its kind, what a capture may not do, and how calls
// that do not end are ended and named. Streams are threads here, so a call really runs later than it is made.
#include <ATen/ops/ones.h>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"
#include "fake_cuda.h"
#include "support/waiting.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

class CommunicatorNcclOnHost : public ::testing::Test {
 protected:
  void SetUp() override { usual_options = R"({"timeout_s": 100})"; }
  static void deterministic() { usual_options = R"({"timeout_s": 100, "deterministic": true})"; }
};

TEST_F(CommunicatorNcclOnHost, collectives_match_a_local_computation) { collectives_match_a_local_computation(); }
TEST_F(CommunicatorNcclOnHost, large_collectives_match_a_local_computation) {
  large_collectives_match_a_local_computation();
}
TEST_F(CommunicatorNcclOnHost, deterministic_collectives_match_a_local_computation) {
  deterministic();
  collectives_match_a_local_computation();
  large_collectives_match_a_local_computation({5});
}
TEST_F(CommunicatorNcclOnHost, deterministic_sums_follow_the_fixed_tree) {
  deterministic();
  sums_follow_the_fixed_tree();
}
TEST_F(CommunicatorNcclOnHost, overlapping_groups_do_not_disturb_each_other) {
  deterministic();
  overlapping_groups_do_not_disturb_each_other();
}
TEST_F(CommunicatorNcclOnHost, works_may_be_waited_for_in_any_order) { works_may_be_waited_for_in_any_order(); }
TEST_F(CommunicatorNcclOnHost, deterministic_works_may_be_waited_for_in_any_order) {
  deterministic();
  works_may_be_waited_for_in_any_order();
}
TEST_F(CommunicatorNcclOnHost, calls_take_effect_in_the_order_in_which_they_were_made) {
  calls_take_effect_in_the_order_in_which_they_were_made();
}
TEST_F(CommunicatorNcclOnHost, deterministic_calls_take_effect_in_the_order_in_which_they_were_made) {
  deterministic();
  calls_take_effect_in_the_order_in_which_they_were_made();
}
// GPUs share none: undefined on every rank, and the next collective is still in step.
TEST_F(CommunicatorNcclOnHost, no_rank_has_memory_that_exists_once) {
  memory_that_exists_once_holds_what_each_rank_wrote();
  expect_no_errors(run_threads(2, [](Rank& r) { EXPECT_FALSE(r.world()->allocate_once(3, at::kFloat).defined()); }));
}
TEST_F(CommunicatorNcclOnHost, abort_ends_a_wait_everywhere) { abort_ends_a_wait_everywhere(); }
TEST_F(CommunicatorNcclOnHost, counts_that_differ_are_named_after_the_timeout) {
  usual_options = R"({"timeout_s": 0.6})";
  counts_that_differ_are_named();
}
TEST_F(CommunicatorNcclOnHost, wrong_counts_are_refused) { wrong_counts_are_refused(); }
TEST_F(CommunicatorNcclOnHost, wrong_shapes_are_refused) { wrong_shapes_are_refused(); }
TEST_F(CommunicatorNcclOnHost, a_rank_that_leaves_is_named) { a_rank_that_leaves_is_named(); }
TEST_F(CommunicatorNcclOnHost, a_late_rank_is_named_after_the_timeout) { a_late_rank_is_named_after_the_timeout(); }

// As behind a recorded step: the host enqueues at once, the device gets there much later than timeout_s.
TEST_F(CommunicatorNcclOnHost, what_a_call_waits_for_on_its_own_device_does_not_count) {
  nccl::host_busy_ms = 1200;
  expect_no_errors(run_threads(
      2,
      [](Rank& r) {
        const GroupPtr world = r.world();
        at::Tensor t = at::ones({100}, at::kFloat);
        const WorkPtr first = world->all_reduce(t), second = world->all_reduce(t);
        second->wait();
        nccl::host_busy_ms = 0;
        world->barrier();
        EXPECT_EQ(t.const_data_ptr<float>()[0], 4);
      },
      R"({"timeout_s": 0.5})"));
  nccl::host_busy_ms = 0;
}

// More scratch than one piece holds, and a length that no piece divides.
TEST_F(CommunicatorNcclOnHost, slices_longer_than_the_scratch_pass_in_pieces) {
  deterministic();
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    const int64_t n = (8 << 20) + 1003;  // float32: 32 MB and a bit for the other rank
    const Collectives c{r, *world, at::kFloat, Place::own};
    c.sums(n);
  }));
}

void expect_named(const std::function<WorkPtr(Group&, int64_t)>& call, const std::string& a, const std::string& b) {
  usual_options = R"({"timeout_s": 0.6})";
  const auto errors = run_threads(2, [&](Rank& r) {
    const GroupPtr world = r.world();
    const WorkPtr work = call(*world, r.rank());
    work->wait();  // the host stands for the stream that waits
    world->barrier();
  });
  for (const std::string& error : errors) {
    expect_part(error, "ranks disagree about call #1 of group \"world\"");
    expect_part(error, "rank 0 called " + a);
    expect_part(error, "rank 1 called " + b);
  }
}

TEST_F(CommunicatorNcclOnHost, different_calls_are_named_after_the_timeout) {
  const auto zeros = [](int64_t n, at::ScalarType dtype = at::kFloat) {
    return at::empty({n}, at::TensorOptions(dtype));
  };
  expect_named([&](Group& g, int64_t r) { return g.all_reduce(zeros(10 + r)); }, "all_reduce of 10 Float",
               "all_reduce of 11 Float");
  expect_named([&](Group& g, int64_t r) { return g.broadcast(zeros(4), r); }, "broadcast of 4 Float from index 0",
               "broadcast of 4 Float from index 1");
  expect_named([&](Group& g, int64_t r) { return g.all_reduce(zeros(4, r == 0 ? at::kFloat : at::kInt)); },
               "all_reduce of 4 Float", "all_reduce of 4 Int");
}

TEST_F(CommunicatorNcclOnHost, a_message_that_nobody_sends_is_named) {
  const auto errors = run_threads(
      2,
      [](Rank& r) {
        const GroupPtr world = r.world();
        if (r.rank() == 0) world->recv(at::empty({3}, at::kFloat), 1)->wait();
        world->barrier();
      },
      R"({"timeout_s": 0.6})");
  for (const std::string& error : errors) EXPECT_NE(error, "");
  expect_part(errors[0], "within 0.6 s");
}

TEST_F(CommunicatorNcclOnHost, a_rank_that_never_makes_the_group_is_named) {
  const auto errors = run_threads(
      2,
      [](Rank& r) {
        with_late_ranks(r, {1}, [&] {
          if (r.rank() == 0) r.world();
        });
      },
      R"({"timeout_s": 0.3})");
  expect_part(errors[0], "rank 1 did not reach make_group of group \"world\" within 0.3 s (rank 0 did)");
}

TEST_F(CommunicatorNcclOnHost, after_a_failure_every_call_says_the_cause) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    world->barrier();
    r.communicator->abort("first");
    r.communicator->abort("second");
    at::Tensor t = at::empty({3}, at::kFloat);
    for (int i = 0; i < 2; ++i) {
      expect_part(error_of([&] { world->barrier(); }), "aborted: first");
      expect_part(error_of([&] { world->all_reduce(t); }), "aborted: first");
    }
  }));
}

TEST_F(CommunicatorNcclOnHost, nothing_is_asked_while_a_graph_is_captured) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    at::Tensor t = at::ones({100}, at::kFloat);
    world->all_reduce(t)->wait();
    world->barrier();
    // Waits: what a watchdog asks before the capture does not count; a late one is found all the same
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the watchdogs have seen the end of it
    nccl::host_capturing = true;
    const WorkPtr first = world->all_reduce(t), second = world->all_gather(at::empty({200}, at::kFloat), t);
    first->wait();
    second->wait();
    if (r.rank() == 0) expect_part(error_of([&] { world->barrier(); }), "while a graph is captured");
    // Waits: what must not happen has its time; a slow machine makes it longer
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(nccl::host_queries_while_capturing, 0);
  }));
  nccl::host_capturing = false;
}

TEST_F(CommunicatorNcclOnHost, only_messages_stand_in_a_batch) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    at::Tensor t = at::empty({3}, at::kFloat);
    world->batch_begin();
    expect_part(error_of([&] { world->all_reduce(t); }), "only send and recv may stand in a batch");
    const WorkPtr work = r.rank() == 0 ? world->send(t, 1) : world->recv(t, 0);
    expect_part(error_of([&] { work->wait(); }), "call batch_end first");
    world->batch_end();
    work->wait();
    world->barrier();
  }));
}

TEST_F(CommunicatorNcclOnHost, a_rank_alone_sends_to_itself) {
  expect_no_errors(run_threads(1, [](Rank& r) {
    const GroupPtr world = r.world();
    const at::Tensor sent = at::ones({3}, at::kFloat), got = at::empty({3}, at::kFloat);
    world->batch_begin();
    world->recv(got, 0);
    world->send(sent, 0);
    world->batch_end();
    EXPECT_TRUE(same_bits(sent, got));
  }));
}

// A Work that an exception drops: what it moves is read until the peer has come, and given back after that.
TEST_F(CommunicatorNcclOnHost, memory_of_a_work_that_nobody_waited_for_lives_until_the_call_is_done) {
  std::atomic<bool> dropped = false;
  expect_no_errors(run_threads(2, [&](Rank& r) {
    const GroupPtr world = r.world();
    if (r.rank() == 1) {
      dropped.wait(false);
      // Waits: what must not happen has its time; a slow machine makes it longer
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the watchdog of the other rank looks meanwhile
      const at::Tensor t = at::ones({100}, at::kFloat);
      world->all_reduce(t)->wait();
      EXPECT_EQ(t[0].item<float>(), 2);
      return world->barrier();
    }
    at::Tensor t = at::ones({100}, at::kFloat);
    const c10::weak_intrusive_ptr<c10::TensorImpl> weak(t.getIntrusivePtr());
    world->all_reduce(std::exchange(t, {}));
    EXPECT_FALSE(weak.expired());
    dropped = true;
    dropped.notify_all();
    world->barrier();
    EXPECT_TRUE(test::eventually([&] { return weak.expired(); }));
  }));
}

TEST_F(CommunicatorNcclOnHost, memory_of_a_call_that_is_not_done_outlives_its_group) {
  std::atomic<bool> dropped = false;
  expect_no_errors(run_threads(2, [&](Rank& r) {
    GroupPtr world = r.world();
    if (r.rank() == 1) {
      dropped.wait(false);
      at::Tensor t = at::ones({100}, at::kFloat);
      world->all_reduce(t)->wait();
      EXPECT_EQ(t[0].item<float>(), 2);
      return;
    }
    at::Tensor t = at::ones({100}, at::kFloat);
    const c10::weak_intrusive_ptr<c10::TensorImpl> weak(t.getIntrusivePtr());
    world->all_reduce(std::exchange(t, {}));
    world.reset();
    // Waits: what must not happen has its time; a slow machine makes it longer
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(weak.expired());
    dropped = true;
    dropped.notify_all();
    EXPECT_TRUE(test::eventually([&] { return weak.expired(); }));
  }));
}

TEST_F(CommunicatorNcclOnHost, asking_for_an_event_leaves_no_error_behind) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    // Waits: the other rank has to ask meanwhile; a slow machine makes it longer
    if (r.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    world->barrier();  // asks until the other one has come
    EXPECT_EQ(nccl::host_last_error, cudaSuccess);
  }));
}

TEST_F(CommunicatorNcclOnHost, communicators_may_follow_each_other_on_one_store) {
  const auto store = make_local_store();
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      for (int i = 0; i < 10; ++i) Rank(r, 2, *store, usual_options).world()->barrier();
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace drivetrain
