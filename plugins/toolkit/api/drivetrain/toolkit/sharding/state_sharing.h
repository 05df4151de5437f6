// What strategies that share state out over ranks are written on: which ranks share what, flat buckets, sums of
// gradients, gathers of values, and the plan of all that. A strategy fills ShardingOptions in `plan`, and says in its
// hooks when gradients are summed and values gathered; which of values, gradients and optimizer state are cut is what
// tells the strategies apart.
//
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5;
// Zhao et al. 2023, "PyTorch FSDP", section 3.2 (flat parameters, even parts); Zhang et al. 2022, "MiCS" (groups that
// share, sums over groups).
//
// Parameters of a unit lie in buckets, flat buffers cut evenly over the ranks of `shard_axes`. Of these axes, as of all
// below, a bucket uses those over which the gradients of its parameters are summed (Param::reduction_axes); parameters
// that differ in them have buckets of their own. Thread: main.
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

  // Further axes of the mesh that join the gradient reduction (parts of one sequence) are added at `attach`:
  // to shard_axes where all ranks share, else to replica_axes.
  std::vector<std::string> shard_axes;    // ranks along them hold a part each; none: everything is whole
  std::vector<std::string> replica_axes;  // ranks along them hold copies of the part, whose gradients are summed
  bool shard_grads = false;               // whole gradients exist only from a unit's backward to their sum
  bool shard_values = false;              // whole values exist only around a unit's forward and backward
  int64_t micro_batches = 1;              // of a step, on this rank
  int64_t reduce_every = 0;   // micro-batches added before their gradients are summed over ranks; 0: all of a step
  int64_t bucket = kNoLimit;  // elements of a bucket at most, where that is not less than one parameter
  int64_t update_chunk = kNoLimit;  // elements that the optimizer updates in one call
  bool overlap = true;              // false: every collective is waited for at once, gathers too
  // masters, moments and the part's gradients in the host's memory; the optimizer runs there
  bool offload_state = false;
  bool offload_values = false;  // the parts of sharded values in the host's memory
  bool pinned = true;           // what is offloaded lies in page-locked memory

  // For sharded values, in elements of whole buckets:
  int64_t prefetch = 50'000'000;      // gathered ahead of their use
  int64_t prefetch_units = 0;         // instead: units gathered ahead; 0: by elements
  int64_t persistent = 0;             // parameters of up to that many stay whole
  int64_t reuse_distance = 0;         // kept if used again after at most that many others
  int64_t live = kNoLimit;            // whole at one time, beyond what a unit needs
  bool release_after_forward = true;  // false: kept until the unit's backward
  // of shard_axes: a second copy is cut over these only, and gathered for backward
  std::vector<std::string> backward_axes;
};

class StateSharing : public DataParallel {
 public:
  explicit StateSharing(const Services& services);
  ~StateSharing() override;

  void attach(UnitList& units) override;
  void step_begin(StepContext& ctx) override;
  void flush_grads(StepContext& ctx) override;  // every sum of the step is done; units without a backward give zeros
  std::vector<Trainables> trainables() override;
  std::vector<Trainables> frozen() override;

  // What `plan` chose, valid after it.
  const ShardingOptions& sharding() const { return options_; }
  // ranks that share one copy of the state; 1: nothing is shared out
  int64_t shard_ranks() const { return shard_ranks_; }
  int64_t second_ranks() const { return second_ranks_; }  // over which the copy for backward is cut; 0: there is none

 protected:
  // Helpers of a derived class's plan, called in this order. First one of these: who shares a copy.
  // They claim the mesh's axes and return shard_ranks(). `key` is the option that asked for groups of `size`
  // neighbouring ranks; sizes that do not divide the ranks that other plugins leave are refused under that name,
  // and then all ranks share.
  static int64_t sharing_ranks(const PlanContext& ctx);  // all ranks whose gradients are summed
  int64_t share_nothing(PlanContext& ctx);
  int64_t share_over_all(PlanContext& ctx);
  int64_t share_over_groups(PlanContext& ctx, const std::string& key, int64_t size);
  // Over all ranks, on two axes: "dp" inside groups of `size` neighbours, "replica" across them. For collectives in two
  // steps.
  int64_t share_over_nested_groups(PlanContext& ctx, const std::string& key, int64_t size);
  // The same, with a second copy of the values for backward that is cut over the neighbours only.
  int64_t share_with_second_copy(PlanContext& ctx, const std::string& key, int64_t size);
  // How often gradients are summed over ranks:
  // as the section says, else the run, else `usual` - but once per step where nothing is shared out, since sums of
  // several micro-batches would be memory for nothing. Reads shard_grads.
  void choose_sums(PlanContext& ctx, std::optional<int64_t> section_reduce_every, int64_t usual);
  // Then, once options_ is complete: what each rank will hold and send, what gathers cost,
  // and whether steps may be recorded. `at_once` is what a user could set to have gathers waited for at once ("\"x\":
  // false"), "" if nothing.
  void plan_memory(PlanContext& ctx) const;
  void plan_gathers(PlanContext& ctx) const;
  void plan_recording(PlanContext& ctx, const std::string& at_once) const;

  // For the hooks, after `attach`.
  sharding::GradSums& grads() { return *grads_; }
  sharding::ValueGathers& values() { return *values_; }
  // How values are gathered. Called by `attach` once; a strategy with gathers of its own returns a class derived from
  // ValueGathers (value_gathers.h).
  virtual std::unique_ptr<sharding::ValueGathers> make_value_gathers(
      const UnitList& units, const std::vector<std::unique_ptr<sharding::Bucket>>& buckets) const;

  const Services& services_;
  ShardingOptions options_;  // set by the derived class in plan

 private:
  bool divides(PlanContext& ctx, const std::string& key, int64_t size) const;
  void plan_traffic(PlanContext& ctx) const;
  int64_t gathers(const PlanContext& ctx) const;  // of a unit's values, per step
  double gathered_bytes(const PlanContext& ctx) const;
  void name_joined_axes();
  std::vector<Trainables> pieces(bool trainable) const;

  int64_t shard_ranks_ = 1, second_ranks_ = 0, replica_ranks_ = 1;
  std::vector<std::unique_ptr<sharding::Bucket>> buckets_;  // outlive what moves them
  std::unique_ptr<sharding::ValueGathers> values_;
  std::unique_ptr<sharding::GradSums> grads_;
};

}  // namespace drivetrain
