#include <drivetrain/toolkit/sharding/sharded_data_parallel.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

#include "sharded_gradients.h"
#include "sharded_plan.h"
#include "sharded_values.h"

namespace drivetrain {
namespace {

using sharding::Bucket;
using sharding::Groups;
using sharding::lends_grads;
using sharding::sums_several_times;

// Parameters of a unit that share a bucket: of one sort, in order, up to the limit.
struct BucketPlan {
  std::vector<ParamPtr> params;
  std::vector<std::string> axes;  // over which their gradients are summed
  bool trainable = true, resident = true, closed = false;
  int64_t numel = 0;
};

std::vector<BucketPlan> plan_buckets(const std::vector<ParamPtr>& params, const ShardingOptions& options,
                                     const Mesh& mesh) {
  std::vector<BucketPlan> plans;
  for (const ParamPtr& param : params) {
    const int64_t numel = param->layout.local_numel(mesh);
    const bool resident = !options.shard_values || numel <= options.persistent;
    const std::vector<std::string> axes = reduction_axes(*param, mesh);
    const auto open = std::find_if(plans.rbegin(), plans.rend(), [&](const BucketPlan& plan) {
      return !plan.closed && plan.trainable == param->trainable && plan.resident == resident && plan.axes == axes;
    });
    const bool alone = param->tied_over_stages;  // so that parts of its copies lie on the same ranks of each stage
    if (!alone && open != plans.rend() && open->numel + numel <= options.bucket) {
      open->params.push_back(param);
      open->numel += numel;
    } else {
      plans.push_back({{param}, axes, param->trainable, resident, alone, numel});
    }
  }
  return plans;
}

// The groups of every set of reduction axes, made once. Ranks of a group have the same units, so all ask in one order.
class GroupsByAxes {
 public:
  GroupsByAxes(const Mesh& mesh, const ShardingOptions& options) : mesh_(mesh), options_(options) {}

  const Groups& of(const std::vector<std::string>& axes) {
    const auto [found, is_new] = made_.try_emplace(axes);
    if (!is_new) return found->second;
    Groups& groups = found->second;
    groups.shard_axes = common(options_.shard_axes, axes);
    groups.shard = mesh_.group(groups.shard_axes);
    groups.replica = mesh_.group(common(options_.replica_axes, axes));
    // Over all axes of the second copy or none: it is cut evenly over the whole of its group.
    const std::vector<std::string> backward = common(options_.backward_axes, axes);
    if (!backward.empty()) groups.backward = mesh_.group(backward);
    return groups;
  }

 private:
  static std::vector<std::string> common(const std::vector<std::string>& list, const std::vector<std::string>& axes) {
    std::vector<std::string> both;
    for (const std::string& axis : list)
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) both.push_back(axis);
    return both;
  }

  const Mesh& mesh_;
  const ShardingOptions& options_;
  std::map<std::vector<std::string>, Groups> made_;
};

// Chooses where the buffers of a bucket come from, by what will be moved through them.
class BucketMaker {
 public:
  BucketMaker(const Services& services, const ShardingOptions& options, const Groups& groups)
      : services_(services), options_(options), groups_(groups) {}

  std::unique_ptr<Bucket> make(const BucketPlan& plan, int64_t unit) const {
    auto bucket = std::make_unique<Bucket>();
    bucket->unit = unit, bucket->trainable = plan.trainable, bucket->groups = groups_;
    FlatOptions flat;
    flat.dtypes = services_.dtypes, flat.device = services_.device;
    flat.shards = groups_.shard->size(), flat.shard = groups_.shard->rank();
    flat.shard_axes = groups_.shard_axes;
    flat.chunk = options_.update_chunk;
    flat.host_state = options_.offload_state, flat.pinned = options_.pinned;
    bucket->lent = plan.trainable && lends_grads(options_, flat.shards);
    flat.lent_grads = bucket->lent, flat.part_grads = bucket->lent || sums_several_times(options_);
    if (GroupPtr mover = groups_.mover(); mover->size() > 1)
      flat.allocate_grads = [mover](int64_t numel, at::ScalarType dtype) { return mover->allocate(numel, dtype); };
    place_values(plan, *bucket, flat);
    bucket->flat = std::make_unique<FlatUnit>(plan.params, *services_.mesh, flat);
    finish(*bucket);
    return bucket;
  }

 private:
  // Once for all ranks of the group if that can be, since then a gather moves nothing.
  void place_values(const BucketPlan& plan, Bucket& bucket, FlatOptions& flat) const {
    bucket.resident = plan.resident || flat.shards == 1;
    if (flat.shards == 1) return;
    const GroupPtr shard = groups_.shard;
    const auto own = [shard](int64_t numel, at::ScalarType dtype) { return shard->allocate(numel, dtype); };
    const at::Tensor once =
        shard->allocate_once(FlatUnit::numel_of(plan.params, *services_.mesh, flat.shards), flat.dtypes.param);
    if (once.defined()) {
      bucket.resident = true;
      flat.allocate_values = [once](int64_t, at::ScalarType) { return once; };
    } else if (bucket.resident) {
      flat.allocate_values = own;
    } else {
      flat.part_values = true;
      flat.host_values = options_.offload_values;
      flat.allocate_part_values = own;
    }
  }

  void finish(Bucket& bucket) const {
    if (bucket.resident) return;
    if (groups_.backward)
      bucket.second =
          groups_.backward->allocate(bucket.flat->numel() / groups_.backward->size(), services_.dtypes.param);
    bucket.flat->release();
  }

  const Services& services_;
  const ShardingOptions& options_;
  const Groups& groups_;
};

}  // namespace

ShardedDataParallel::ShardedDataParallel(const Services& services) : services_(services) {}
ShardedDataParallel::~ShardedDataParallel() = default;

// Parts of one sequence hold copies: they share the state where all ranks do,
// else their gradients are summed as replicas' are.
void ShardedDataParallel::name_joined_axes() {
  ShardingOptions& s = options_;
  const auto names = [](const std::vector<std::string>& list, const std::string& axis) {
    return std::find(list.begin(), list.end(), axis) != list.end();
  };
  std::vector<std::string>& joined = !s.shard_axes.empty() && s.replica_axes.empty() ? s.shard_axes : s.replica_axes;
  for (const Axis& axis : services_.mesh->axes())
    if (axis.joins_gradients && axis.size > 1 && !names(s.shard_axes, axis.name) && !names(s.replica_axes, axis.name))
      joined.push_back(axis.name);
}

void ShardedDataParallel::attach(UnitList& units) {
  name_joined_axes();
  const Mesh& mesh = *services_.mesh;
  GroupsByAxes groups(mesh, options_);
  for (size_t u = 0; u < units.units.size(); ++u)
    for (const BucketPlan& plan : plan_buckets(units.owned(u), options_, mesh))
      buckets_.push_back(BucketMaker(services_, options_, groups.of(plan.axes)).make(plan, static_cast<int64_t>(u)));
  values_ = std::make_unique<sharding::Values>(options_, units, buckets_);
  gradients_ = std::make_unique<sharding::Gradients>(options_, services_.dtypes, services_.device, units, buckets_);
}

void ShardedDataParallel::step_begin(StepContext&) { gradients_->step_begin(); }

void ShardedDataParallel::before_forward(const Visit& visit, StepContext& ctx) { values_->before(visit, ctx); }
void ShardedDataParallel::after_forward(const Visit& visit, StepContext& ctx) { values_->after(visit, ctx); }

void ShardedDataParallel::before_backward(const Visit& visit, StepContext& ctx) { values_->before(visit, ctx); }
void ShardedDataParallel::before_grads(const Visit& visit, StepContext&) { gradients_->before_grads(visit); }
void ShardedDataParallel::after_backward(const Visit& visit, StepContext&) { gradients_->after_backward(visit); }
void ShardedDataParallel::values_done(const Visit& visit, StepContext& ctx) { values_->after(visit, ctx); }

void ShardedDataParallel::flush_grads(StepContext&) { gradients_->flush(); }

void ShardedDataParallel::after_update(Trainables& chunk, StepContext&) { values_->updated(*chunk.front().param); }

std::vector<Trainables> ShardedDataParallel::trainables() { return pieces(true); }
std::vector<Trainables> ShardedDataParallel::frozen() { return pieces(false); }

std::vector<Trainables> ShardedDataParallel::pieces(bool trainable) const {
  std::vector<Trainables> all;
  for (const auto& bucket : buckets_)
    if (bucket->trainable == trainable)
      all.insert(all.end(), bucket->flat->pieces().begin(), bucket->flat->pieces().end());
  return all;
}

}  // namespace drivetrain
