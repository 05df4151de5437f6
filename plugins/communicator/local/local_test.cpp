// communicator/local: what it promises beyond the suite of its kind: processes, memory, messages, threads.
#include <ATen/ops/sum.h>
#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>

#include <set>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

TEST(CommunicatorLocal, works_between_processes) {
  const auto ended = run_processes(2, [](Rank& r) {
    const GroupPtr world = r.world();
    for (const Place place : {Place::own, Place::shared, Place::mixed}) {
      const Collectives c{r, *world, at::kFloat, place};
      c.sums(300001);
      c.moves(300001);
      c.exchanges(300001);
      c.messages(300001);
    }
    if (::testing::Test::HasFailure()) throw std::runtime_error("a comparison failed");
  });
  for (const Ended& e : ended) EXPECT_EQ(e.error, "");
}

// Between processes private buffers really are out of the peers' reach.
TEST(CommunicatorLocal, works_between_processes_may_be_waited_for_in_any_order) {
  runner = run_forked;
  works_may_be_waited_for_in_any_order({2, 5});
  calls_take_effect_in_the_order_in_which_they_were_made({3, 4});
  memory_that_exists_once_holds_what_each_rank_wrote({2, 4});
  sums_follow_the_fixed_tree(4);
  runner = run_threads;
}

TEST(CommunicatorLocal, ranks_that_do_not_share_have_no_memory_that_exists_once) {
  expect_no_errors(run_threads(
      2,
      [](Rank& r) {
        const GroupPtr world = r.world();
        EXPECT_FALSE(world->allocate_once(10, at::kFloat).defined());
        Collectives{r, *world, at::kFloat, Place::shared}.moves(300);
      },
      R"({"timeout_s": 20, "share": false})"));
}

// The file is too large to be filled: that blocks come back shows in where they lie.
TEST(CommunicatorLocal, memory_that_exists_once_is_used_again_when_the_last_rank_let_go) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    at::Tensor kept;
    std::set<const void*> blocks;
    for (int64_t i = 0; i < 200; ++i) {
      const at::Tensor once = world->allocate_once(int64_t{1} << 28, at::kByte);
      ASSERT_TRUE(once.defined());
      blocks.insert(once.const_data_ptr());
      if (r.rank() == 1) kept = once;  // lets go one round later than rank 0
    }
    EXPECT_LE(blocks.size(), 3u);
    kept.reset();
    world->barrier();
  }));
}

// Messages too large for the rings, all sends before all receives, waited for backwards and without a batch.
TEST(CommunicatorLocal, messages_need_not_be_waited_for_in_order) {
  expect_no_errors(run_threads(3, [](Rank& r) {
    const GroupPtr world = r.world();
    const Collectives c{r, *world, at::kInt, Place::own};
    const int64_t n = 1000003, me = r.rank(), next = (me + 1) % 3, before = (me + 2) % 3;
    at::Tensor t = c.filled(n, [&](int64_t i) { return number(me, i, at::kInt); }), got = c.empty(n),
               again = c.empty(n);
    std::vector<WorkPtr> works = {world->send(t, next)};
    works.push_back(world->all_reduce(t));  // after it was sent
    works.push_back(world->send(t, next));  // what was summed
    works.push_back(world->recv(got, before));
    works.push_back(world->recv(again, before));
    works.push_back(world->all_reduce(got));  // once it is there
    for (size_t w = works.size(); w-- > 0;) works[w]->wait();
    c.expect(got, "the sum of what was received", [&](int64_t i) { return c.total(i); });
    c.expect(again, "the sum that was received", [&](int64_t i) { return c.total(i); });
  }));
}

// Two threads per rank, each in a group of its own.
TEST(CommunicatorLocal, groups_may_be_used_from_several_threads) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr groups[] = {r.group({0, 1}, "a"), r.group({0, 1}, "b")};
    const auto use = [&](Group& group) {
      for (const Place place : {Place::own, Place::shared}) {
        const Collectives c{r, group, at::kFloat, place};
        for (int64_t i = 0; i < 100; ++i) {
          const Outstanding call = make_call(c, i);
          call.work->wait();
          call.expect();
        }
        c.sums(100003);
      }
    };
    std::thread other([&] { use(*groups[1]); });
    use(*groups[0]);
    other.join();
  }));
}

// Shared memory is anonymous: a container with a tiny or no /dev/shm is enough.
TEST(CommunicatorLocal, needs_no_dev_shm) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k,mode=0555") != 0)
      _exit(77);
    const auto errors = run_forked(2, [](Rank& r) {
      Collectives{r, *r.world(), at::kFloat, Place::shared}.sums(300007);
    });
    _exit(errors[0].empty() && errors[1].empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no permission to mount a small /dev/shm";
  EXPECT_EQ(status, 0);
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

// A copy of memory over itself or between slices of it would depend on who comes first.
TEST(CommunicatorLocal, buffers_that_overlap_otherwise_than_as_the_own_slice_are_refused) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const GroupPtr world = r.world();
    const int64_t other = 1 - r.rank();
    for (const Place place : {Place::own, Place::shared}) {
      const at::Tensor t = Collectives{r, *world, at::kFloat, place}.empty(20);
      const at::Tensor theirs = t.narrow(0, 10 * other, 10), across = t.narrow(0, 5, 10);
      for (const at::Tensor& slice : {theirs, across}) {
        const std::string wanted = concat("exactly slice ", r.rank(), " of the other");
        expect_part(error_of([&] { world->all_gather(t, slice); }), wanted);
        expect_part(error_of([&] { world->reduce_scatter(slice, t); }), wanted);
      }
      expect_part(error_of([&] { world->all_to_all(t, t); }), "in and out overlap");
    }
    world->barrier();  // a refused call is none
  }));
}

TEST(CommunicatorLocal, sums_into_memory_that_exists_once_are_refused) {
  for (const bool all_to_all : {false, true}) {
    const auto errors = run_threads(2, [&](Rank& r) {
      const GroupPtr world = r.world();
      const at::Tensor once = world->allocate_once(300, at::kFloat);
      world->all_reduce(once.narrow(0, 150 * r.rank(), 150))->wait();  // of its own
      if (all_to_all)
        world->all_to_all(once, world->allocate(300, at::kFloat))->wait();
      else
        world->all_reduce(once.narrow(0, 100 * r.rank(), 150))->wait();
    });
    for (const std::string& error : errors) expect_part(error, "ranks 0 and 1 gave the same memory for the result");
  }
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

}  // namespace
}  // namespace drivetrain
