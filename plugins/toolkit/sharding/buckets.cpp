#include <drivetrain/toolkit/sharding/buckets.h>

#include <algorithm>
#include <map>

#include "state_sharing_plan.h"

namespace drivetrain::sharding {
namespace {

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

std::vector<std::string> common(const std::vector<std::string>& list, const std::vector<std::string>& axes) {
  std::vector<std::string> both;
  for (const std::string& axis : list)
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) both.push_back(axis);
  return both;
}

int64_t ranks_along(const Mesh& mesh, const std::vector<std::string>& axes) {
  int64_t ranks = 1;
  for (const Axis& axis : mesh.axes())
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) ranks *= axis.size;
  return ranks;
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
    bucket->temporary_grads = plan.trainable && has_temporary_grads(options_, flat.shards);
    flat.temporary_grads = bucket->temporary_grads,
    flat.part_grads = bucket->temporary_grads || sums_several_times(options_);
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

std::vector<BucketSizes> bucket_sizes(const UnitList& units, const Mesh& mesh, const ShardingOptions& options) {
  std::vector<BucketSizes> all;
  for (size_t u = 0; u < units.units.size(); ++u)
    for (const BucketPlan& plan : plan_buckets(units.owned(u), options, mesh)) {
      BucketSizes& sizes = all.emplace_back();
      sizes.unit = static_cast<int64_t>(u), sizes.trainable = plan.trainable, sizes.params = plan.params;
      sizes.elements = plan.numel;
      sizes.shards = ranks_along(mesh, common(options.shard_axes, plan.axes));
      sizes.sums = sizes.shards * ranks_along(mesh, common(options.replica_axes, plan.axes)) > 1;
      sizes.resident = plan.resident || sizes.shards == 1;
      sizes.numel = FlatUnit::numel_of(plan.params, mesh, sizes.shards);
    }
  return all;
}

Buckets make_buckets(const UnitList& units, const Services& services, const ShardingOptions& options) {
  Buckets buckets;
  GroupsByAxes groups(*services.mesh, options);
  for (size_t u = 0; u < units.units.size(); ++u)
    for (const BucketPlan& plan : plan_buckets(units.owned(u), options, *services.mesh))
      buckets.push_back(BucketMaker(services, options, groups.of(plan.axes)).make(plan, static_cast<int64_t>(u)));
  return buckets;
}

std::map<const Param*, Bucket*> homes(const Buckets& buckets) {
  std::map<const Param*, Bucket*> home;
  for (const auto& bucket : buckets)
    for (const ParamPtr& param : bucket->flat->params()) home[param.get()] = bucket.get();
  return home;
}

std::vector<std::vector<Bucket*>> buckets_by_unit(const UnitList& units, const Buckets& buckets) {
  const auto home = homes(buckets);
  std::vector<std::vector<Bucket*>> lists(units.units.size());
  for (size_t u = 0; u < lists.size(); ++u)
    for (const ParamPtr& param : units.units[u]->params()) {
      Bucket* const bucket = home.at(param.get());
      if (std::find(lists[u].begin(), lists[u].end(), bucket) == lists[u].end()) lists[u].push_back(bucket);
    }
  return lists;
}

}  // namespace drivetrain::sharding
