// communicator/mpi with every process of `mpirun -n N` as one rank: the suite of its kind for this N, and what is
// particular to it. CommunicatorMpi runs with any number of ranks, CommunicatorMpi2 with two, and so on (see
// CMakeLists.txt).
#include <ATen/ops/full.h>

#include <drivetrain/testkit/communicator/works.h>
#include "../process.h"
#include "conformance/communicator/linked.h"

#include <chrono>
#include <thread>

namespace drivetrain::test {
namespace {

constexpr double kPatienceS = 100;

// This process's place and the store that all ranks share.
struct Here {
  RankEnvironment env = read_rank_environment();
  std::shared_ptr<Store> store = make_store(env, kPatienceS);
  int64_t rounds = 0;

  // What every rank says, in rank order.
  std::vector<std::string> gather_from_all(const std::string& own) {
    const std::string round = concat("round/", ++rounds, "/");
    store->set(concat(round, env.rank), own);
    std::vector<std::string> all;
    for (int64_t r = 0; r < env.world_size; ++r) all.push_back(store->get(concat(round, r), kPatienceS));
    return all;
  }
};
Here& here() {
  static Here place;
  return place;
}

// Suites run many sizes; those that are not this world's are other runs' affair.
std::vector<std::string> run_as_one_rank(int64_t n, const Body& body, const std::string& json) {
  if (n != here().env.world_size) return std::vector<std::string>(static_cast<size_t>(n));
  std::string error;
  try {
    Rank rank(here().env.rank, n, *here().store, json);
    body(rank);
  } catch (const std::exception& e) {
    error = e.what();
  }
  return here().gather_from_all(error);
}

// Ranks end together: mpirun ends the others when one has left.
class OneRankOfMany : public testing::Environment {
  void SetUp() override {
    runner = run_as_one_rank;
    check_arrival(*here().store, here().env, kPatienceS);
  }
  void TearDown() override {
    const bool failed = testing::UnitTest::GetInstance()->Failed();
    for (const std::string& rank : here().gather_from_all(failed ? "failed" : ""))
      EXPECT_EQ(rank, "") << "on another rank";
  }
};
const auto* const environment = testing::AddGlobalTestEnvironment(new OneRankOfMany);

void with_options(const std::string& json, const std::function<void()>& run) {
  const std::string before = std::exchange(usual_options, json);
  run();
  usual_options = before;
}

TEST(CommunicatorMpi, collectives_match_a_local_computation) {
  collectives_match_a_local_computation({here().env.world_size});
}
TEST(CommunicatorMpi, large_collectives_match_a_local_computation) {
  large_collectives_match_a_local_computation({here().env.world_size});
}
TEST(CommunicatorMpi, sums_follow_the_fixed_tree) { sums_follow_the_fixed_tree(here().env.world_size); }

// Slices of a few elements in many pieces, and messages cut where larger ones are at 1 GB.
TEST(CommunicatorMpi, however_small_the_pieces_the_bits_are_the_same) {
  with_options(R"({"timeout_s": 20, "piece_bytes": 64})", [] {
    sums_follow_the_fixed_tree(here().env.world_size);
    check_collectives(here().env.world_size, {0, 1, 257, 1031, 5003}, {at::kDouble, at::kHalf, at::kByte});
  });
}

TEST(CommunicatorMpi, without_shared_memory_the_bits_are_the_same) {
  with_options(R"({"timeout_s": 20, "share": false})", [] {
    sums_follow_the_fixed_tree(here().env.world_size);
    check_collectives(here().env.world_size, {0, 1, 1031, 5003}, {at::kDouble, at::kHalf, at::kByte});
  });
}

// More than is copied at once: what is left over goes through MPI, in the same order.
TEST(CommunicatorMpi, long_messages_out_of_private_memory_keep_their_order) {
  const int64_t ranks = here().env.world_size;
  expect_no_errors(run_ranks(ranks, [&](Rank& r) {
    const GroupPtr world = r.world();
    const Collectives c{r, *world, at::kInt, Place::own};
    const int64_t me = r.rank(), next = (me + 1) % ranks, before = (me + ranks - 1) % ranks, n = 3'000'000;
    std::vector<at::Tensor> sent, got;
    std::vector<WorkPtr> works;
    for (int64_t k = 0; k < 4; ++k) {
      sent.push_back(c.filled(n, [&](int64_t i) { return number(me + k, i, at::kInt); }));
      works.push_back(world->send(sent.back(), next));
    }
    for (int64_t k = 0; k < 4; ++k) got.push_back(c.empty(n)), works.push_back(world->recv(got.back(), before));
    for (const WorkPtr& work : works) work->wait();
    for (int64_t k = 0; k < 4; ++k)
      c.expect(got[static_cast<size_t>(k)], "recv", [&](int64_t i) { return number(before + k, i, at::kInt); });
  }));
}

TEST(CommunicatorMpi, works_may_be_waited_for_in_any_order) {
  works_may_be_waited_for_in_any_order({here().env.world_size}, 60);
}
TEST(CommunicatorMpi, calls_take_effect_in_the_order_in_which_they_were_made) {
  calls_take_effect_in_the_order_in_which_they_were_made({here().env.world_size});
}
TEST(CommunicatorMpi, memory_that_exists_once_holds_what_each_rank_wrote) {
  memory_that_exists_once_holds_what_each_rank_wrote({here().env.world_size});
}

// Large messages, all sends before all receives, waited for backwards and without a batch; alone: to itself.
TEST(CommunicatorMpi, messages_need_not_be_waited_for_in_order) {
  const int64_t ranks = here().env.world_size;
  expect_no_errors(run_ranks(ranks, [&](Rank& r) {
    const GroupPtr world = r.world();
    const Collectives c{r, *world, at::kInt, Place::own};
    for (const int64_t n : {5, 1000003}) {
      const int64_t me = r.rank(), next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
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
    }
  }));
}

TEST(CommunicatorMpi, an_exchange_needs_no_batch_and_a_rank_may_send_to_itself) {
  const int64_t ranks = here().env.world_size;
  expect_no_errors(run_ranks(ranks, [&](Rank& r) {
    const GroupPtr world = r.world();
    const Collectives c{r, *world, at::kInt, Place::own};
    for (int64_t shift = 0; shift < ranks; ++shift) {
      const int64_t n = 300007, from = (r.rank() + ranks - shift) % ranks;
      const at::Tensor t = c.filled(n, [&](int64_t i) { return number(r.rank(), i, at::kInt); });
      at::Tensor got = c.empty(n);
      const WorkPtr sent = world->send(t, (r.rank() + shift) % ranks), received = world->recv(got, from);
      sent->wait();
      received->wait();
      c.expect(got, "recv", [&](int64_t i) { return number(from, i, at::kInt); });
    }
  }));
}

TEST(CommunicatorMpi, after_a_failure_every_call_says_the_cause_and_a_new_communicator_works) {
  expect_no_errors(run_ranks(here().env.world_size, [](Rank& r) {
    const GroupPtr world = r.world();
    here().gather_from_all("");  // nobody is in a call
    if (r.rank() == 0) r.communicator->abort("first");
    at::Tensor t = at::empty({100000}, at::kFloat);
    const auto aborted = [&] {
      return error_of([&] { world->all_reduce(t)->wait(); }).find("aborted: first") != std::string::npos;
    };
    // Waits: a deadline is a time; no slow machine reaches it
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::duration<double>(kPatienceS);
    // Waits: until the deadline
    while (!aborted() && std::chrono::steady_clock::now() < give_up) continue;
    for (int i = 0; i < 2; ++i) expect_part(error_of([&] { world->barrier(); }), "rank 0 aborted: first");
  }));
  sums_follow_the_fixed_tree(here().env.world_size);
}

TEST(CommunicatorMpi, tensors_elsewhere_are_refused) {
  expect_no_errors(run_ranks(here().env.world_size, [](Rank& r) {
    const GroupPtr world = r.world();
    expect_part(error_of([&] { world->all_reduce(at::empty({3}, at::TensorOptions(at::kFloat).device(at::kMeta))); }),
                "wanted a tensor on the CPU, found one on meta");
    world->barrier();
  }));
}

TEST(CommunicatorMpi, ranks_that_are_threads_of_one_process_are_refused) {
  const auto store = make_local_store();
  const Rank first(0, 2, *store, "{}");
  expect_part(error_of([&] { Rank(1, 2, *store, "{}"); }), "ranks 0 and 1 are threads of one process");
}

TEST(CommunicatorMpi2, memory_that_overlaps_in_other_ways_is_refused) {
  expect_no_errors(run_ranks(2, [](Rank& r) {
    const GroupPtr world = r.world();
    const at::Tensor t = at::full({6}, 1.0f, at::kFloat), other = t.narrow(0, 3 * (1 - r.rank()), 3);
    const auto refused = [&](const char* call, const std::function<void()>& body) {
      expect_part(error_of(body),
                  concat("communicator/mpi: ", call, " in group \"world\": in and out overlap; wanted "));
    };
    refused("all_to_all", [&] { world->all_to_all(t, t); });
    refused("all_gather", [&] { world->all_gather(t, other); });
    refused("reduce_scatter", [&] { world->reduce_scatter(other, t); });
    world->barrier();  // a refused call is none
  }));
}

TEST(CommunicatorMpi2, different_calls_are_named) { different_calls_are_named(); }
TEST(CommunicatorMpi2, counts_that_differ_are_named) { counts_that_differ_are_named(); }
TEST(CommunicatorMpi2, wrong_counts_are_refused) { wrong_counts_are_refused(); }
TEST(CommunicatorMpi2, wrong_shapes_are_refused) { wrong_shapes_are_refused(); }

TEST(CommunicatorMpi2, a_receive_that_does_not_fit_the_send_is_refused) {
  for (const int64_t n : {3, 30000}) {
    const auto errors = run_ranks(2, [&](Rank& r) {
      const GroupPtr world = r.world();
      if (r.rank() == 0)
        world->send(at::empty({n}, at::kFloat), 1)->wait();
      else
        world->recv(at::empty({n + 1}, at::kFloat), 0)->wait();
      world->barrier();
    });
    for (const std::string& error : errors)
      expect_part(error, concat("rank 0 sent ", n, " Float where rank 1 called recv of ", n + 1, " Float"));
  }
}

TEST(CommunicatorMpi2, a_message_that_nobody_sends_is_named) {
  const auto errors = run_ranks(
      2,
      [](Rank& r) {
        const GroupPtr world = r.world();
        if (r.rank() == 0) world->recv(at::empty({3}, at::kFloat), 1)->wait();
        world->barrier();
      },
      R"({"timeout_s": 0.4})");
  for (const std::string& error : errors) EXPECT_NE(error.find("within 0.4 s"), std::string::npos) << error;
}

TEST(CommunicatorMpi2, a_rank_that_never_makes_the_group_is_named) {
  const auto errors = run_ranks(
      2,
      [](Rank& r) {
        with_late_ranks(r, {1}, [&] {
          if (r.rank() == 0) r.world();
        });
      },
      R"({"timeout_s": 0.3})");
  expect_part(errors[0], "rank 1 did not reach make_group of group \"world\" within 0.3 s (rank 0 did)");
}

TEST(CommunicatorMpi3, abort_ends_a_wait_everywhere) { abort_ends_a_wait_everywhere(); }
TEST(CommunicatorMpi3, a_rank_that_leaves_is_named) { a_rank_that_leaves_is_named(); }
TEST(CommunicatorMpi3, a_late_rank_is_named_after_the_timeout) { a_late_rank_is_named_after_the_timeout(); }

TEST(CommunicatorMpi3, waiting_anywhere_drives_the_works_of_all_groups) {
  waiting_anywhere_drives_the_works_of_all_groups();
}

// Ranks 0 and 2 only: nobody else needs to call.
TEST(CommunicatorMpi3, a_group_is_made_by_its_members_alone) {
  expect_no_errors(run_ranks(3, [](Rank& r) {
    if (r.rank() != 1) {
      const GroupPtr ends = r.group({0, 2}, "ends");
      at::Tensor t = at::full({5}, 2.0f, at::kFloat);
      ends->all_reduce(t)->wait();
      EXPECT_EQ(t.const_data_ptr<float>()[4], 4);
    }
    r.world()->barrier();
  }));
}

// Ranks that believe to be on two hosts with two of them each.
TEST(CommunicatorMpi4, two_hosts_of_two_ranks_have_the_bits_of_one) {
  const CommunicatorMaker usual = communicator_maker;
  communicator_maker = [&](const std::string& json, const Services& all_here) {
    Services services = all_here;
    services.local_rank %= 2, services.local_size = 2;
    return usual(json, services);
  };
  sums_follow_the_fixed_tree(4);
  with_options(R"({"timeout_s": 20, "piece_bytes": 20000})", [] {
    sums_follow_the_fixed_tree(4);
    check_collectives(4, {0, 1, 1031, 50021}, {at::kDouble, at::kFloat, at::kHalf});
  });
  communicator_maker = usual;
}

TEST(CommunicatorMpi4, overlapping_groups_do_not_disturb_each_other) { overlapping_groups_do_not_disturb_each_other(); }

// By the run alone, in a child: MPI itself is not asked.
TEST(MpiDeadline, ends_a_process_whose_call_does_not_return_and_names_it) {
  using mpi::Deadline;
  const auto call = [](double limit_s, double takes_s) {
    {
      const Deadline deadline(mpi::did_not_return("MPI_Init_thread", limit_s), limit_s, mpi::kPeerLost);
      // Waits: for longer or shorter than the deadline under test
      std::this_thread::sleep_for(std::chrono::duration<double>(takes_s));
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(call(0.05, 20), testing::ExitedWithCode(5), "MPI_Init_thread did not return within 0.05 s");
  EXPECT_EXIT(call(20, 0.01), testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace drivetrain::test
