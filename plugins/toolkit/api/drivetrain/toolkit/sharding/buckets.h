// Buckets of a strategy that shares state out: each a flat buffer of some of a unit's parameters, and where its
// collectives stand. Owned by StateSharing; ValueGathers moves the first half, GradSums the second. Main thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <drivetrain/toolkit/sharding/state_sharing.h>

namespace drivetrain::sharding {

// The ranks along those axes of ShardingOptions over which a bucket's gradients are summed.
struct Groups {
  std::vector<std::string> shard_axes;
  GroupPtr shard, replica;
  GroupPtr backward;  // null: gathered over `shard` in both directions

  bool sums() const { return shard->size() > 1 || replica->size() > 1; }
  // Whose memory gradients are moved through.
  const GroupPtr& mover() const { return shard->size() > 1 ? shard : replica; }
};

struct Bucket {
  int64_t unit = 0;  // whose parameters they are
  bool trainable = true;
  bool resident = true;  // whole values never leave
  Groups groups;
  std::unique_ptr<FlatUnit> flat;

  WorkPtr gather;      // of the values, not waited for yet
  int64_t users = 0;   // spans of units that are open
  size_t updated = 0;  // chunks, since the last gather
  at::Tensor second;   // part of this rank's `backward` group; undefined: there is none
  bool second_valid = false;

  bool lent = false;   // whole gradients have memory from a unit's backward to their sum only
  int64_t visits = 0;  // backward visits of the unit in this step
  int64_t sums = 0;    // over ranks, begun in this step
};

using Buckets = std::vector<std::unique_ptr<Bucket>>;

// Gives every parameter of the units its place, by what will be moved. Collective: groups are made.
Buckets make_buckets(const UnitList& units, const Services& services, const ShardingOptions& options);

// Which bucket a parameter lies in.
std::map<const Param*, Bucket*> homes(const Buckets& buckets);

// The buckets whose parameters unit u computes with, for every unit:
// its own, and those of units it shares parameters with.
std::vector<std::vector<Bucket*>> buckets_by_unit(const UnitList& units, const Buckets& buckets);

}  // namespace drivetrain::sharding
