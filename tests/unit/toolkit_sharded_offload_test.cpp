// State and values that are kept in the host's memory apart from where units compute: the same numbers.
// On a machine without a device both are host memory, yet buffers of their own,
// so every copy that a device needs is made.
#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/testkit/data_parallel/suite.h>

#include "support/sharing_strategy.h"

namespace drivetrain::test {
namespace {

class Offloaded : public SharingStrategy {
 public:
  Offloaded(const Services& services, bool state, bool values) : SharingStrategy(services) {
    options_.shard_axes = {"dp"};
    options_.shard_grads = true, options_.shard_values = values;
    options_.offload_state = state, options_.offload_values = values;
  }
  void plan(PlanContext& ctx) override {
    ctx.claim_axis("dp", PlanRecord::kRest, PlanRecord::Reads::other_rows, 2);
    options_.micro_batches = ctx.run().accumulation.value_or(1);
    options_.reduce_every = ctx.run().reduce_every.value_or(1);
  }
};

void expect_right_numbers(bool state, bool values, at::ScalarType param) {
  for (const int64_t ranks : {1, 2, 3}) {
    DataParallelTrial trial{.name = "offloaded", .ranks = ranks, .accumulation = 2, .param = param, .share = false};
    trial.make = [&](const Services& services) { return std::make_shared<Offloaded>(services, state, values); };
    check_data_parallel(trial);
    trial.reduce_every = 0;
    check_data_parallel(trial);
  }
}

TEST(ShardedOffload, optimizer_state_on_the_host_gives_the_same_numbers) {
  expect_right_numbers(true, false, at::kFloat);
}
TEST(ShardedOffload, so_do_parameters_on_the_host) { expect_right_numbers(false, true, at::kFloat); }
TEST(ShardedOffload, so_do_both) { expect_right_numbers(true, true, at::kFloat); }
TEST(ShardedOffload, so_do_both_with_masters) { expect_right_numbers(true, true, at::kBFloat16); }

// With one device for all, only the memory tells:
// what is updated must not be the host's part, which has no gradient beside it.
TEST(ShardedOffload, values_on_the_host_are_copies_of_what_is_updated_beside_its_gradient) {
  const auto param = std::make_shared<Param>("w", Layout::whole({3}), InitRule::ones());
  FlatOptions options;
  options.part_values = options.host_values = true;
  const FlatUnit flat({param}, Mesh({}, 0, 1, nullptr), options);
  const Trainable t = flat.trainables().at(0);
  EXPECT_EQ(t.working.const_data_ptr(), flat.part_values().const_data_ptr());
  EXPECT_NE(t.value.const_data_ptr(), t.working.const_data_ptr());
}

TEST(ShardedOffload, the_norm_reads_the_gradient_where_it_was_summed) {
  const auto param = std::make_shared<Param>("w", Layout::whole({3}), InitRule::ones());
  FlatOptions options;
  options.host_state = true;
  FlatUnit flat({param}, Mesh({}, 0, 1, nullptr), options);
  const Trainable t = flat.trainables().at(0);
  param->grad.fill_(2), t.grad.fill_(-1);
  EXPECT_EQ(t.device_grad.const_data_ptr(), param->grad.const_data_ptr());
  flat.copy_grads_to_host();
  EXPECT_EQ(t.grad[2].item<double>(), 2);
  EXPECT_NE(t.value.const_data_ptr(), t.working.const_data_ptr());
}

}  // namespace
}  // namespace drivetrain::test
