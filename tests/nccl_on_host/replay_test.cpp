// Steps that were recorded and are replayed, over the stand-ins for CUDA and NCCL: calls of a replay that do not end
// are ended and named, though the host makes none of them.
#include <ATen/ops/ones.h>

#include <map>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"
#include "fake_cuda.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
using nccl::HostDevice;
using nccl::HostGraph;

constexpr double kMayTakeS = 15;  // far more than any replay here

// A step with one sum, recorded after it ran once as it is, and behind it what the runtime does: all ranks exchange
// their figures by a call that is not recorded, and the host waits for the device.
class Step {
 public:
  explicit Step(Rank& r, int64_t numel = 10) : rank_(r), world_(r.world()), sum_(at::ones({numel}, at::kFloat)) {
    world_->all_reduce(once_)->wait();
    EXPECT_TRUE(device_.synchronize(kMayTakeS));
  }
  // `first`: what the device does ahead of the call.
  void record(const std::function<void()>& first = [] {}) {
    graph_.begin();
    nccl::enqueue_on_host(nullptr, first);
    world_->all_reduce(sum_)->wait();
    graph_.end();
  }
  void run() {
    graph_.replay();
    const WorkPtr gathered = world_->all_gather(all_, mine_);
    gathered->wait();
    if (!device_.synchronize(kMayTakeS)) {
      rank_.communicator->abort("the replay hangs");
      throw std::runtime_error("the replay hangs");
    }
    gathered->wait();
  }
  float sum() const { return sum_.const_data_ptr<float>()[0]; }
  Group& world() { return *world_; }

 private:
  const HostDevice device_;
  Rank& rank_;
  const GroupPtr world_;
  // The host's memory: it stays as long as the device uses it.
  at::Tensor sum_, once_ = at::ones({3}, at::kFloat), all_ = at::ones({2}, at::kFloat),
                   mine_ = at::ones({1}, at::kFloat);
  HostGraph graph_;
};

class CommunicatorNcclReplay : public ::testing::Test {
 protected:
  std::vector<std::string> run(const std::function<void(Rank&)>& rank, double timeout_s) {
    return run_threads(2, rank, concat("{\"timeout_s\": ", timeout_s, "}"));
  }
};

TEST_F(CommunicatorNcclReplay, makes_its_calls_again) {
  expect_no_errors(run(
      [](Rank& r) {
        Step step(r);
        step.record();
        for (int i = 0; i < 3; ++i) step.run();
        EXPECT_EQ(step.sum(), 8);
      },
      20));
}

// Groups whose calls were recorded are closed by all of their ranks together, and stages of a pipeline have two of them
// with each other, which each of them may give up in its own order.
TEST_F(CommunicatorNcclReplay, groups_that_ranks_give_up_in_other_orders_are_closed) {
  expect_no_errors(run(
      [](Rank& r) {
        const HostDevice device;
        std::map<std::string, GroupPtr> groups;
        for (const char* label : {"0 to 1", "1 to 0"}) groups[label] = r.group({0, 1}, label);
        at::Tensor there = at::ones({3}, at::kFloat), back = at::ones({3}, at::kFloat);
        const auto pass = [&] {
          for (const int64_t from : {0, 1}) {
            Group& group = *groups.at(concat(from, " to ", 1 - from));
            at::Tensor& message = from == 0 ? there : back;
            (r.rank() == from ? group.send(message, 1 - from) : group.recv(message, from))->wait();
          }
        };
        pass();
        {
          HostGraph graph;
          graph.begin(), pass(), graph.end();
          graph.replay();
          EXPECT_TRUE(device.synchronize(kMayTakeS));
        }
        for (const int64_t first : {r.rank(), 1 - r.rank()}) groups.erase(concat(first, " to ", 1 - first));
        r.communicator.reset();
        EXPECT_EQ(r.log.warnings, std::vector<std::string>());
      },
      kMayTakeS));
}

TEST_F(CommunicatorNcclReplay, a_rank_that_does_not_replay_is_named_after_the_timeout) {
  const auto errors = run(
      [](Rank& r) {
        Step step(r);
        step.record();
        step.run(), step.run();
        with_late_ranks(r, {1}, [&] { step.run(); });
      },
      0.6);
  for (const std::string& error : errors)
    expect_part(error,
                "rank 1 did not reach all_reduce #2 of group \"world\" in the replay of a recorded step within 0.6 s "
                "(rank 0 did)");
}

TEST_F(CommunicatorNcclReplay, a_rank_that_leaves_is_named_long_before_the_timeout) {
  const auto errors = run(
      [](Rank& r) {
        Step step(r);
        step.record();
        step.run();
        if (r.rank() == 0) step.run();
      },
      60);
  expect_part(errors[0], "rank 1 (pid ");
  expect_part(errors[0], "closed its communicator");
}

TEST_F(CommunicatorNcclReplay, different_calls_are_named_after_the_timeout) {
  const auto errors = run(
      [](Rank& r) {
        Step step(r, 10 + r.rank());
        step.record();
        step.run();
      },
      0.6);
  for (const std::string& error : errors) {
    expect_part(error, "ranks disagree about call #2 of group \"world\"");
    expect_part(error, "rank 1 called all_reduce of 11 Float");
  }
}

// Most of a replay is computing, which is no wait for others, however long it takes.
TEST_F(CommunicatorNcclReplay, what_a_call_waits_for_on_its_own_device_does_not_count) {
  expect_no_errors(run(
      [](Rank& r) {
        Step step(r);
        // Waits: longer than the time-out, which is for waiting alone
        step.record([] { std::this_thread::sleep_for(std::chrono::milliseconds(1200)); });
        step.run();
        EXPECT_EQ(step.sum(), 2);
      },
      0.5));
}

}  // namespace
}  // namespace drivetrain
