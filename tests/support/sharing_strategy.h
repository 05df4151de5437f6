// A strategy on StateSharing with hooks like those of ZeRO, for tests that set ShardingOptions themselves.
#pragma once

#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/state_sharing.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

namespace drivetrain::test {

class SharingStrategy : public StateSharing {
 public:
  using StateSharing::StateSharing;
  void before_forward(const Visit& visit, StepContext& ctx) override { values().use(visit), values().prefetch(ctx); }
  void before_backward(const Visit& visit, StepContext& ctx) override { values().use(visit), values().prefetch(ctx); }
  void after_forward(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void values_done(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void before_grads(const Visit& visit, StepContext&) override { grads().make_room(visit.unit); }
  void after_backward(const Visit& visit, StepContext&) override {
    for (sharding::Bucket* bucket : grads().complete(visit)) grads().begin(*bucket, visit.last);
  }
  void after_update(Trainables& chunk, StepContext&) override { values().updated(*chunk.front().param); }
};

}  // namespace drivetrain::test
