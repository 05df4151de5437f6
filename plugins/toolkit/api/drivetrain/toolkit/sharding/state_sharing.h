// Base of sharding strategies (DDP, ZeRO, FSDP): which ranks share the state, flat buckets, gradient reduction, gathers
// of values, and the plan of all that. A strategy fills ShardingOptions in `plan`, and its hooks call when gradients
// are summed and values gathered. Strategies differ in what they shard: values, gradients, optimizer state.
//
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5;
// Zhao et al. 2023, "PyTorch FSDP", section 3.2 (flat parameters, even parts); Zhang et al. 2022, "MiCS" (groups that
// share, sums over groups).
//
// The parameters of a unit are in buckets, flat buffers that are sharded evenly over the ranks of `shard_axes`. A
// bucket uses only those axes over which the gradients of its parameters are summed (Param::reduction_axes); parameters
// with different reduction axes are in different buckets. Thread: main.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/data_parallel.h>
#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/sharding/flat_unit.h>

namespace drivetrain {

namespace sharding {
struct Bucket;
class GradSums;
class ValueGathers;
}  // namespace sharding

struct ShardingOptions {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  // `attach` adds further mesh axes that join the gradient reduction (cp): to shard_axes if all ranks share the state,
  // else to replica_axes.
  std::vector<std::string> shard_axes;    // ranks along them hold one part each; empty: nothing is sharded
  std::vector<std::string> replica_axes;  // ranks along them hold copies of a part; its gradients are summed
  bool shard_grads = false;               // full gradients exist only from a unit's backward to their sum
  bool shard_values = false;              // full values exist only around a unit's forward and backward
  int64_t micro_batches = 1;              // per step, on this rank
  int64_t reduce_every = 0;   // micro-batches whose gradients are added before the sum over ranks; 0: all of a step
  int64_t bucket = kNoLimit;  // largest number of elements per bucket; a bucket has at least one parameter
  int64_t update_chunk = kNoLimit;  // elements that the optimizer updates in one call
  bool overlap = true;              // false: every collective is waited for at once
  // With `overlap`: values that stay are gathered by the next pass, from its first use of any, instead of behind their
  // update, so that a recorded step holds its gathers whole. `attach` sets it where steps are recorded.
  bool gather_late = false;
  // master weights, moments and the part's gradients are in host memory; the optimizer runs on the host
  bool offload_state = false;
  bool offload_values = false;  // the parts of sharded values are in host memory
  bool pinned = true;           // offloaded tensors are in page-locked memory

  // With shard_values; sizes are elements of complete buckets:
  int64_t prefetch = 50'000'000;      // how much is gathered ahead of its use
  int64_t prefetch_units = 0;         // if not 0: how many units are gathered ahead, instead of `prefetch`
  int64_t persistent = 0;             // parameters of up to this size are not sharded
  int64_t reuse_distance = 0;         // values are kept if they are used again within this many elements
  int64_t live = kNoLimit;            // the most that is gathered at one time, beyond what a unit needs
  bool release_after_forward = true;  // false: values are kept until the unit's backward
  // A subset of shard_axes. Not empty: a second copy, sharded over these axes only, is gathered for backward (hpZ).
  std::vector<std::string> backward_axes;
};

class StateSharing : public DataParallel {
 public:
  explicit StateSharing(const Services& services);
  ~StateSharing() override;

  void attach(UnitList& units) override;
  void step_begin(StepContext& ctx) override;
  void flush_grads(StepContext& ctx) override;  // waits for all sums; units without a backward give zeros
  std::vector<Trainables> trainables() override;
  std::vector<Trainables> frozen() override;
  bool plan_units(PlanContext& ctx, const PlannedStage& stage) const override;

  // The options that `plan` chose; valid after it.
  const ShardingOptions& sharding() const { return options_; }
  // The number of ranks that share one copy of the state; 1: nothing is sharded.
  int64_t shard_ranks() const { return shard_ranks_; }
  int64_t second_ranks() const { return second_ranks_; }  // that share the second copy; 0: there is none

 protected:
  // Helpers for the `plan` of a derived class, called in this order. First one of these, which chooses the ranks that
  // share a copy. They claim mesh axes and return shard_ranks(). `key`: the option that asked for groups of `size`
  // neighbouring ranks. A size that does not divide the ranks which other plugins leave is refused with that name;
  // planning then continues as if all ranks shared.
  static int64_t sharing_ranks(const PlanContext& ctx);  // number of ranks over which gradients are summed
  int64_t share_nothing(PlanContext& ctx);
  int64_t share_over_all(PlanContext& ctx);
  int64_t share_over_groups(PlanContext& ctx, const std::string& key, int64_t size);
  // Shards over all ranks with two axes: "dp" inside groups of `size` neighbours, "replica" across the groups. For
  // collectives in two steps.
  int64_t share_over_nested_groups(PlanContext& ctx, const std::string& key, int64_t size);
  // The same, with a second copy of the values for backward that is sharded over the neighbours only.
  int64_t share_with_second_copy(PlanContext& ctx, const std::string& key, int64_t size);
  // Chooses how often gradients are summed over ranks: the plugin's own option, else the run's, else `usual`; but once
  // per step if nothing is sharded, since earlier sums would need memory and gain nothing. Reads shard_grads.
  void choose_sums(PlanContext& ctx, std::optional<int64_t> section_reduce_every, int64_t usual);
  // Last, when options_ is complete: report what each rank will hold and send, what gathers cost, and whether steps may
  // be recorded as a CUDA graph: by themselves where no gather overlaps another part of the step, else where a user
  // asks for it (recorded_when_asked.h), and never with what lives on the host or a second copy.
  void plan_memory(PlanContext& ctx) const;
  void plan_gathers(PlanContext& ctx) const;
  void plan_recording(PlanContext& ctx) const;

  // For the hooks; valid after `attach`.
  sharding::GradSums& grads() { return *grads_; }
  sharding::ValueGathers& values() { return *values_; }
  // Called once by `attach`. A strategy with gathers of its own returns a class derived from ValueGathers
  // (value_gathers.h).
  virtual std::unique_ptr<sharding::ValueGathers> make_value_gathers(
      const UnitList& units, const std::vector<std::unique_ptr<sharding::Bucket>>& buckets) const;

  const Services& services_;
  ShardingOptions options_;  // set by the derived class in plan

 private:
  bool divides(PlanContext& ctx, const std::string& key, int64_t size) const;
  void plan_traffic(PlanContext& ctx) const;
  void plan_host_copies(PlanContext& ctx) const;
  void plan_updates(PlanContext& ctx, double elements) const;
  bool holds_values_on_host() const { return options_.shard_values && options_.offload_values && shard_ranks_ > 1; }
  int64_t gathers(const PlanContext& ctx) const;  // of a unit's values, per step
  double gathered_bytes(const PlanContext& ctx) const;
  ShardingOptions with_joined_axes(const Mesh& mesh) const;
  std::vector<Trainables> pieces(bool trainable) const;

  int64_t shard_ranks_ = 1, second_ranks_ = 0, replica_ranks_ = 1;
  std::vector<std::unique_ptr<sharding::Bucket>> buckets_;  // outlive what moves them
  std::unique_ptr<sharding::ValueGathers> values_;
  std::unique_ptr<sharding::GradSums> grads_;
};

}  // namespace drivetrain
