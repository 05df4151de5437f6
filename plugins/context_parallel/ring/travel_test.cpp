// How keys travel: what a window reaches goes straight to who sees it, and nothing else, with the bits of the ring.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>

#include <numeric>

#include <drivetrain/communicator.h>
#include <drivetrain/plan_record.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/passing_group.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/rank_threads.h>

#include "support/plugin_under_test.h"
#include "travel.h"
#include "zigzag.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
using ring::Block;
using ring::RingShape;

// Another group, which counts what this rank sends.
struct CountingGroup : PassingGroup {
  using PassingGroup::PassingGroup;
  WorkPtr send(at::Tensor t, int64_t to) override {
    ++messages, bytes += static_cast<double>(t.nbytes());
    return PassingGroup::send(t, to);
  }

  int64_t messages = 0;
  double bytes = 0;
};

// Runs `body` with every rank's group.
void with_groups(int64_t ranks, const std::function<void(const std::shared_ptr<CountingGroup>&)>& body) {
  const auto store = make_memory_store();
  std::vector<int64_t> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), int64_t{0});
  expect_no_errors(on_threads(ranks, [&](int64_t rank) {
    LinesLog log;
    const Services services{
        .log = log, .store = *store, .rank = rank, .world_size = ranks, .local_rank = rank, .local_size = ranks};
    const auto communicator =
        installed_plugins().make<Communicator>("local", R"({"timeout_s": 20, "spin": 0})", services);
    const auto group = std::make_shared<CountingGroup>(communicator->make_group(all, "cp"));
    body(group);
    group->barrier();
  }));
}

// One visit of a layer: what arrives is given back, times what only this rank would say. Of bfloat16, whose sums show
// their order.
struct Visit {
  Tensors arrived, home;
};

Visit visit(ring::Travel& travel, const RingShape& shape, int64_t rank) {
  Visit seen;
  for (int64_t step = 1; step < shape.ranks; ++step) {
    const std::vector<Block> blocks = blocks_between(shape, rank, (rank - step + shape.ranks) % shape.ranks);
    Tensors found;
    for (const at::Tensor& part : travel.arrived(step, blocks)) {
      seen.arrived.push_back(part.clone());
      found.push_back(part * (1.37 * static_cast<double>(rank) + 0.1 * static_cast<double>(found.size()) + 1));
    }
    travel.give(step, blocks, found);
  }
  for (const at::Tensor& sum : travel.home()) seen.home.push_back(sum.clone());
  return seen;
}

TEST(RingTravel, straight_gives_the_bits_of_the_ring_for_every_window_and_documents) {
  constexpr int64_t kRows = 2, S = 48, G = 2, D = 3;
  for (const std::vector<int64_t>& documents : {std::vector<int64_t>{}, {0, 5, 29, 31, 48, 60, 96}, {0, 48, 91, 96}})
    for (const int64_t ranks : {2, 3, 4})
      for (const int64_t window : {1, 4, 9, 20, 47})
        with_groups(ranks, [&](const std::shared_ptr<CountingGroup>& group) {
          SCOPED_TRACE(concat("rank ", group->rank(), " of ", ranks, ", window ", window));
          const RingShape shape{kRows, S / ranks, ranks, documents, window};
          const at::Tensor kv = at::rand({2, kRows, S / ranks, G, D}).to(at::kBFloat16);
          ring::Exchanges exchanges(group);
          const Visit round = visit(*travel_round(exchanges, kv[0], kv[1]), shape, group->rank());
          const Visit straight = visit(*travel_straight(exchanges, kv[0], kv[1], shape), shape, group->rank());
          ASSERT_EQ(straight.arrived.size(), round.arrived.size());
          for (size_t i = 0; i < round.arrived.size(); ++i)
            EXPECT_TRUE(at::equal(straight.arrived[i], round.arrived[i]));
          for (size_t i = 0; i < round.home.size(); ++i) {
            EXPECT_EQ(straight.home[i].scalar_type(), at::kFloat);
            EXPECT_TRUE(at::equal(straight.home[i], round.home[i]));
          }
        });
}

// Of eight chunks of 16 a window of 10 joins neighbours alone: 9 keys of the chunk before. Ranks at the ends of the
// order have one such neighbour on another rank, the two chunks in the middle are one rank's. Round the ring, each rank
// sends 32 keys in each of three steps, and gradients of 4 bytes.
TEST(RingTravel, sends_what_a_window_reaches_and_nothing_else) {
  constexpr int64_t kRanks = 4, kKeys = 32, G = 2, D = 4;
  constexpr double kKey = 2.0 * G * D * 2;  // k and v, of bfloat16
  const std::vector<int64_t> one_document;
  with_groups(kRanks, [&](const std::shared_ptr<CountingGroup>& group) {
    const int64_t rank = group->rank();
    const RingShape shape{1, kKeys, kRanks, one_document, 10};
    const at::Tensor kv = at::rand({2, 1, kKeys, G, D}).to(at::kBFloat16);
    ring::Exchanges exchanges(group);
    visit(*travel_straight(exchanges, kv[0], kv[1], shape), shape, rank);
    // Keys to the ranks that have the chunk behind one of ours; gradients to those that have the chunk before.
    const int64_t readers = rank == 0 || rank == 3 ? 1 : 2, owners = readers;
    EXPECT_EQ(group->messages, readers + owners) << "rank " << rank;
    EXPECT_EQ(group->bytes, 9 * kKey * static_cast<double>(readers + owners)) << "rank " << rank;
    group->messages = 0, group->bytes = 0;
    visit(*travel_round(exchanges, kv[0], kv[1]), shape, rank);
    EXPECT_EQ(group->messages, 3 + 3);
    EXPECT_EQ(group->bytes, 3 * kKeys * kKey + 3 * kKeys * kKey * 2);
  });
}

}  // namespace
}  // namespace drivetrain
