// Steps of sharding strategies that are recorded and replayed, with their gathers and sums beside the computation, over
// the stand-ins for CUDA and NCCL: what the units compute runs on the stream, too, so a wait that is missing shows in
// the values. That a graph is whole the stand-ins check as CUDA does.
#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"
#include "host_run.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

constexpr int64_t kWarmUp = 2;

struct Way {
  const char* name;
  ShardingOptions options;
};

std::vector<Way> ways() {
  ShardingOptions zero1;
  zero1.shard_axes = {"dp"}, zero1.gather_late = true;
  ShardingOptions zero2 = zero1;
  zero2.shard_grads = true, zero2.reduce_every = 1;
  ShardingOptions zero3 = zero2;
  zero3.shard_values = true;
  ShardingOptions mixed = zero3;  // the second unit stays whole
  mixed.persistent = kNumel;
  ShardingOptions fsdp = zero3;
  fsdp.prefetch = 0, fsdp.prefetch_units = 1;
  ShardingOptions kept = fsdp;
  kept.release_after_forward = false;
  return {{"zero 1", zero1}, {"zero 2", zero2},   {"zero 3", zero3}, {"zero 3, a unit stays", mixed},
          {"fsdp", fsdp},    {"fsdp, kept", kept}};
}

class RecordedSharding : public ::testing::Test {
 protected:
  // What each rank threw.
  static std::vector<std::string> run(const ShardingOptions& options, int64_t warm_up, std::vector<Outcome>& ranks) {
    const KeptMemory memory;
    ranks.assign(2, {});
    return run_threads(
        2, [&](Rank& r) { ranks[static_cast<size_t>(r.rank())] = HostRun(r, options, warm_up).run(); },
        R"({"timeout_s": 20})");
  }
};

TEST_F(RecordedSharding, replays_make_the_calls_of_steps_that_are_not_recorded_and_come_to_their_bits) {
  for (const Way& way : ways()) {
    std::vector<Outcome> as_it_is, recorded;
    expect_no_errors(run(way.options, kSteps, as_it_is));
    expect_no_errors(run(way.options, kWarmUp, recorded));
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(as_it_is[rank].values.size(), static_cast<size_t>(kSteps / 2)) << way.name;
      EXPECT_EQ(recorded[rank].values, as_it_is[rank].values) << way.name;
      EXPECT_EQ(recorded[rank].calls, as_it_is[rank].calls) << way.name;
    }
    for (const auto& [early, late] : {std::pair(0, 1), std::pair(1, 2)})
      EXPECT_NE(recorded[0].values[early], recorded[0].values[late]) << way.name;
    EXPECT_EQ(recorded[0].values, recorded[1].values) << way.name;
  }
}

TEST_F(RecordedSharding, a_gather_that_is_left_open_where_its_part_ends_is_named_with_who_began_it) {
  ShardingOptions early = ways()[0].options;
  early.gather_late = false;
  std::vector<Outcome> ranks;
  for (const std::string& error : run(early, kWarmUp, ranks)) {  // an evaluation has waited for those before
    expect_part(error, "in test/sharing, hook after_update: nobody has waited for its all_gather");
    expect_part(error, "A recording holds a call with its wait");
    expect_part(error, "set \"capture\": false");
  }
}

TEST_F(RecordedSharding, a_wait_in_a_recording_for_a_call_made_before_it_is_named_with_the_call) {
  ShardingOptions early = ways()[0].options;
  early.gather_late = false;
  std::vector<Outcome> ranks;
  for (const std::string& error : run(early, 0, ranks)) {
    expect_part(error, "in test/sharing, hook before_forward: waits for all_gather #");
    expect_part(error, "made before this part of the step");
  }
}

// What the tests above stand on.
TEST_F(RecordedSharding, the_stand_ins_know_a_graph_that_is_not_whole) {
  expect_no_errors(run_threads(2, [](Rank& r) {
    const nccl::HostDevice device;
    const GroupPtr world = r.world();
    const at::Tensor t = at::ones({3}, at::kFloat);
    const WorkPtr before = world->all_reduce(t);
    nccl::HostGraph open;
    open.begin();
    const WorkPtr within = world->all_reduce(t);
    EXPECT_FALSE(open.end());
    EXPECT_THROW(within->wait(), c10::Error);  // an event of the recording
    before->wait();
    EXPECT_TRUE(device.synchronize(kEndsWithinS));
  }));
}

}  // namespace
}  // namespace drivetrain
