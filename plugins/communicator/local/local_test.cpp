// communicator/local: the suite of its kind, then processes that die, memory and order of 16-bit sums.
#include <ATen/ops/sum.h>
#include <dirent.h>
#include <sys/mman.h>

#include <csignal>

#include "conformance/communicator_works.h"
#include "shared_file.h"
#include "sums.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

TEST(CommunicatorLocal, collectives_match_a_local_computation) { collectives_match_a_local_computation(); }
TEST(CommunicatorLocal, large_collectives_match_a_local_computation) { large_collectives_match_a_local_computation(); }
TEST(CommunicatorLocal, sums_follow_the_fixed_tree) { sums_follow_the_fixed_tree(); }
TEST(CommunicatorLocal, overlapping_groups_do_not_disturb_each_other) {
  overlapping_groups_do_not_disturb_each_other();
}
TEST(CommunicatorLocal, works_may_be_waited_for_in_any_order) { works_may_be_waited_for_in_any_order(); }
TEST(CommunicatorLocal, calls_take_effect_in_the_order_in_which_they_were_made) {
  calls_take_effect_in_the_order_in_which_they_were_made();
}
TEST(CommunicatorLocal, memory_that_exists_once_holds_what_each_rank_wrote) {
  memory_that_exists_once_holds_what_each_rank_wrote();
}
TEST(CommunicatorLocal, abort_ends_a_wait_everywhere) { abort_ends_a_wait_everywhere(); }
TEST(CommunicatorLocal, different_calls_are_named) { different_calls_are_named(); }
TEST(CommunicatorLocal, wrong_shapes_are_refused) { wrong_shapes_are_refused(); }
TEST(CommunicatorLocal, a_rank_that_leaves_is_named) { a_rank_that_leaves_is_named(); }
TEST(CommunicatorLocal, a_late_rank_is_named_after_the_timeout) { a_late_rank_is_named_after_the_timeout(); }

TEST(CommunicatorLocal, works_between_processes) {
  const auto ended = run_processes(2, [](Rank& r) {
    const GroupPtr world = r.world();
    for (const Place place : {Place::own, Place::shared, Place::mixed}) {
      const Collectives c{r, *world, at::kFloat, place};
      c.sums(300001);
      c.moves(300001);
      c.messages(300001);
    }
    if (::testing::Test::HasFailure()) throw std::runtime_error("a comparison failed");
  });
  for (const Ended& e : ended) EXPECT_EQ(e.error, "");
}

void expect_death_is_named(const std::function<void()>& die) {
  std::vector<Ended> ended;
  EXPECT_LT(seconds([&] {
              ended = run_processes(3, [&](Rank& r) {
                const GroupPtr world = r.world();
                at::Tensor t = at::empty({100}, at::kFloat);
                for (int step = 0; step < 5; ++step) world->all_reduce(t)->wait();
                if (r.rank() == 1) die();
                world->all_reduce(t)->wait();
              });
            }),
            3);
  for (const size_t r : {0, 2}) {
    expect_part(ended[r].error, concat("rank 1 (pid ", ended[1].pid, ") died"));
    expect_part(ended[r].error, "all_reduce #6 of group \"world\"");
  }
}

TEST(CommunicatorLocal, a_killed_process_is_named_within_seconds) {
  expect_death_is_named([] { kill(getpid(), SIGKILL); });
}

TEST(CommunicatorLocal, a_process_that_just_exits_is_named_within_seconds) {
  expect_death_is_named([] { _exit(3); });
}

TEST(CommunicatorLocal, a_receiver_learns_that_the_sender_died) {
  const auto ended = run_processes(2, [](Rank& r) {
    const GroupPtr world = r.world();
    if (r.rank() == 1) _exit(0);
    world->recv(at::empty({3}, at::kFloat), 1)->wait();
  });
  expect_part(ended[0].error, concat("rank 1 (pid ", ended[1].pid, ") died"));
}

TEST(CommunicatorLocal, a_rank_that_never_makes_the_group_is_named) {
  const auto errors = run_threads(
      2,
      [](Rank& r) {
        if (r.rank() == 0)
          r.world();
        else
          std::this_thread::sleep_for(std::chrono::milliseconds(600));
      },
      R"({"timeout_s": 0.3})");
  expect_part(errors[0], "rank 1 did not reach make_group of group \"world\" within 0.3 s (rank 0 did)");
}

TEST(CommunicatorLocal, a_rank_in_another_kind_of_call_is_shown) {
  const auto errors = run_threads(
      2,
      [](Rank& r) {
        const GroupPtr world = r.world();
        if (r.rank() == 0)
          world->barrier();
        else
          world->recv(at::empty({3}, at::kFloat), 0)->wait();
      },
      R"({"timeout_s": 0.3})");
  EXPECT_TRUE(errors[0].find("it is in ") != std::string::npos || errors[1].find("it is in ") != std::string::npos)
      << errors[0] << errors[1];
}

TEST(CommunicatorLocal, a_receive_that_does_not_fit_the_send_is_refused) {
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

TEST(CommunicatorLocal, after_a_failure_every_call_says_the_cause) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    r.communicator->abort("first");
    r.communicator->abort("second");
    for (int i = 0; i < 2; ++i) expect_part(error_of([&] { world->barrier(); }), "aborted: first");
  }));
}

TEST(CommunicatorLocal, allocated_tensors_outlive_the_communicator) {
  at::Tensor t;
  {
    const auto store = make_local_store();
    Rank rank(0, 1, *store, "{}");
    t = rank.world()->allocate(1000, at::kInt);
  }
  for (int i = 0; i < 1000; ++i) t.mutable_data_ptr<int>()[i] = 7;
  EXPECT_EQ(t.sum().item<int64_t>(), 7000);
}

int open_files() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(CommunicatorLocal, nothing_is_left_after_a_thousand_communicators) {
  const auto store = make_local_store();
  const int before = open_files();
  for (int i = 0; i < 1000; ++i) Rank(0, 1, *store, "{}").world()->barrier();
  EXPECT_EQ(open_files(), before);
}

TEST(CommunicatorLocal, communicators_may_follow_each_other_on_one_store) {
  const auto store = make_local_store();
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      for (int i = 0; i < 20; ++i) Rank(r, 2, *store, R"({"timeout_s": 20})").world()->barrier();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(CommunicatorLocal, unknown_options_and_ranges_are_refused) {
  const auto store = make_local_store();
  expect_part(error_of([&] { Rank(0, 1, *store, R"({"time_out_s": 1})"); }), "timeout_s");
  expect_part(error_of([&] { Rank(0, 1, *store, R"({"timeout_s": 0})"); }), "timeout_s");
}

TEST(CommunicatorLocalMemory, freed_blocks_are_joined_and_used_again) {
  local::SharedFile file(1 << 20);
  const int64_t a = file.allocate(5000), b = file.allocate(1), c = file.allocate(100);
  EXPECT_EQ(b - a, 8192);
  EXPECT_EQ(c - b, 4096);
  file.release(a);
  file.release(c);
  file.release(b);
  const int64_t all = (1 << 20) - static_cast<int64_t>(local::SharedFile::kHeadBytes);
  EXPECT_EQ(file.allocate(static_cast<size_t>(all)), a);
  EXPECT_NE(error_of([&] { file.allocate(1); }), "");
}

// 16-bit types are added in float32 and rounded once: 256 + 1 + 1 + 1 is 259 -> 260 in bfloat16, not 256.
TEST(CommunicatorLocalSums, sixteen_bit_sums_are_rounded_once) {
  const c10::BFloat16 values[] = {256.0f, 1.0f, 1.0f, 1.0f};
  const char* sources[4];
  for (int i = 0; i < 4; ++i) sources[i] = reinterpret_cast<const char*>(&values[i]);
  c10::BFloat16 out;
  local::tree_sum(at::kBFloat16, &out, sources, 4, 1);
  EXPECT_EQ(static_cast<float>(out), 260.0f);
}

}  // namespace
}  // namespace drivetrain
