// Whole values where units need them: gathered after updates where they stay, and around each use where they do not.
// Main thread.
#pragma once

#include <map>

#include <drivetrain/toolkit/sharding/buckets.h>

namespace drivetrain::sharding {

class ValueGathers {
 public:
  ValueGathers(const ShardingOptions& options, const UnitList& units, const Buckets& buckets);
  virtual ~ValueGathers();
  ValueGathers(const ValueGathers&) = delete;
  ValueGathers& operator=(const ValueGathers&) = delete;

  // Before a unit computes with its parameters: they are whole from here to `done`.
  void use(const Visit& visit);
  // Begins gathers for the coming visits, as far as the options allow. They are known, so what is gathered ahead is
  // right from the first step on.
  void prefetch(const StepContext& ctx);
  // The visit does not read its unit's parameters any more: those that are cut are freed, unless they are used again
  // soon.
  void done(const Visit& visit, const StepContext& ctx);
  // One chunk of the bucket that holds `param` has new values. Every rank calls it in the same order. Where whole
  // values stay, they are gathered once all chunks are new.
  void updated(const Param& param);

 protected:
  // Begins to fill bucket.flat->values() with the values of all ranks. Every rank of a group calls it in the same
  // order.
  virtual WorkPtr gather(Bucket& bucket, Direction direction);

 private:
  void begin_gather(Bucket& bucket, Direction direction);
  void finish_gather(Bucket& bucket);
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
