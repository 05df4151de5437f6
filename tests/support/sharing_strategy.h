// A strategy on StateSharing with hooks like those of ZeRO, for tests that set ShardingOptions themselves.
#pragma once

#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/state_sharing.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

namespace drivetrain::test {

class SharingStrategy : public StateSharing {
 public:
  using StateSharing::StateSharing;
  void before_forward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void before_backward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void after_forward(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void values_done(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void before_grads(const Visit& visit, StepContext&) override { grads().make_room(visit); }
  void after_backward(const Visit& visit, StepContext&) override { grads().begin_complete(visit); }
  void after_update(Trainables& chunk, StepContext&) override { values().updated(chunk); }
};

}  // namespace drivetrain::test
