// The buckets of a sharding strategy. A bucket is a flat buffer with some of a unit's parameters, and the state of its
// collectives. Owned by StateSharing; ValueGathers uses the first half of the members, GradSums the second. Main
// thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <drivetrain/toolkit/copy_stream.h>
#include <drivetrain/toolkit/sharding/state_sharing.h>

namespace drivetrain::sharding {

// The groups over which a bucket's gradients are summed: along those axes of ShardingOptions that are also reduction
// axes of its parameters.
struct Groups {
  std::vector<std::string> shard_axes;
  GroupPtr shard, replica;
  GroupPtr backward;  // gathers for backward; null: `shard` gathers in both directions

  bool sums() const { return shard->size() > 1 || replica->size() > 1; }
  // The group that allocates the memory in which gradients are summed.
  const GroupPtr& mover() const { return shard->size() > 1 ? shard : replica; }
};

struct Bucket {
  int64_t unit = 0;  // owner of the parameters
  bool trainable = true;
  bool resident = true;  // all values are always present
  Groups groups;
  std::unique_ptr<FlatUnit> flat;

  WorkPtr gather;                         // pending all-gather of the values; null: none
  bool stale = false;                     // the values stay and are not gathered since the last update
  CopyStream::Moment gathered_from_host;  // where the gather began with a copy from the host
  int64_t users = 0;                      // visits that use the values now
  size_t updated = 0;                     // lists of trainables that were updated since the last gather
  at::Tensor second;  // this rank's part within the `backward` group; undefined: there is no second copy
  bool second_valid = false;

  bool stays_shared() const { return resident && groups.shard->size() > 1; }  // gathered after each update

  bool temporary_grads = false;  // the full gradients have memory only from a unit's backward to their sum
  int64_t visits = 0;            // backward visits of the unit in this step
  int64_t sums = 0;              // sums over ranks that were started in this step
};

using Buckets = std::vector<std::unique_ptr<Bucket>>;

// Makes the buckets and assigns every parameter of the units to one of them. Collective, since it makes groups.
Buckets make_buckets(const UnitList& units, const Services& services, const ShardingOptions& options);

// A bucket before it is made, for the plan.
struct BucketSizes {
  int64_t unit = 0;  // owner of the parameters
  bool trainable = true, resident = true;
  std::vector<ParamPtr> params;
  int64_t elements = 0, numel = 0;  // of the parameters; of the flat buffer, with its gaps
  int64_t shards = 1;               // ranks that share it out
  bool sums = false;                // over ranks
};
std::vector<BucketSizes> bucket_sizes(const UnitList& units, const Mesh& mesh, const ShardingOptions& options);

// The bucket of each parameter.
std::map<const Param*, Bucket*> homes(const Buckets& buckets);

// For every unit, the buckets whose parameters it computes with: its own, and those with tied parameters.
std::vector<std::vector<Bucket*>> buckets_by_unit(const UnitList& units, const Buckets& buckets);

}  // namespace drivetrain::sharding
