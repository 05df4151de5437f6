// Whole values where units need them: gathered after updates where they stay, and around each use where they do not.
// Main thread.
#pragma once

#include <map>

#include "sharded_bucket.h"

namespace drivetrain::sharding {

class Values {
 public:
  Values(const ShardingOptions& options, const UnitList& units, const Buckets& buckets);

  ~Values();

  // Around a unit's forward or backward.
  void before(const Visit& visit, const StepContext& ctx);
  void after(const Visit& visit, const StepContext& ctx);
  // One chunk of the bucket that holds `param` has new values. Every rank calls it in the same order.
  void updated(const Param& param);

 private:
  void begin_gather(Bucket& bucket, Direction direction);
  void finish_gather(Bucket& bucket);
  void prefetch(const StepContext& ctx);
  bool wanted_soon(const Bucket& bucket, const Visit& visit, const StepContext& ctx) const;
  void release(Bucket& bucket, Direction direction);
  bool uses(int64_t unit, const Bucket& bucket) const;
  int64_t sharded_elements(int64_t unit) const;

  const ShardingOptions& options_;
  std::vector<std::vector<Bucket*>> by_unit_;
  std::map<const Param*, Bucket*> home_;
  bool any_sharded_ = false;  // else there is nothing to look ahead for
  int64_t live_ = 0;          // elements of sharded buckets that are whole
};

}  // namespace drivetrain::sharding
