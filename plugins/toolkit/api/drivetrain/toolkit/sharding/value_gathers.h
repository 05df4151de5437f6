// All-gathers of parameter values for a sharding strategy. Values that stay are gathered after each update, or where
// the next pass begins (ShardingOptions::gather_late); sharded values are gathered before each use and released after
// it. No gather of a step's passes is left open at their end. Main thread.
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

  // From Strategy::step_begin, in every training step, also one that is replayed.
  void step_begin();
  // From before_forward and before_backward. On return all values of the unit's parameters are present until `done`.
  // Starts gathers for coming visits (StepContext::ahead), as far as the options allow. Collective.
  void use(const Visit& visit, const StepContext& ctx);
  // From after_forward and values_done: the visit does not read the parameters any more. Releases the sharded ones,
  // unless they are used again soon.
  void done(const Visit& visit, const StepContext& ctx);
  // From after_update: `chunk`, one list of its bucket, has new values. If the bucket's values stay, they are gathered
  // when all its lists are new, or by the next `use` (ShardingOptions::gather_late). Collective: every rank calls it in
  // the same order.
  void updated(const Trainables& chunk);
  // Some values are sharded: `gather` will be called.
  bool any_sharded() const { return any_sharded_; }

 protected:
  // Starts to fill bucket.flat->values() with the parts of all ranks. Collective. A strategy with gathers of its own
  // (for example quantised ones) overrides it. Called where values have to be gathered before they are used, and never
  // where they are always there: where they live once for all ranks of a host (Group::allocate_once), where
  // ShardingOptions::shard_values is false, and for small parameters. `updated` gathers those that stay by itself. The
  // start of a run in which it would never be called says so.
  virtual WorkPtr gather(Bucket& bucket, Direction direction);

 private:
  void begin_stale(const std::vector<Bucket*>& own);
  void gather_resident(Bucket& bucket);
  void prefetch(const StepContext& ctx);
  void begin_gather(Bucket& bucket, Direction direction);
  void finish_gather(Bucket& bucket);
  bool wanted_soon(const Bucket& bucket, const Visit& visit, const StepContext& ctx) const;
  void release(Bucket& bucket, Direction direction);
  bool uses(int64_t unit, const Bucket& bucket) const;
  int64_t sharded_elements(int64_t unit) const;

  const ShardingOptions& options_;
  std::vector<std::vector<Bucket*>> by_unit_;
  std::map<const Param*, Bucket*> home_;
  CopyStream copies_;         // from the host, and the gathers that follow them
  bool any_sharded_ = false;  // otherwise nothing is gathered ahead
  bool any_stale_ = false;
  int64_t live_ = 0;  // elements of sharded buckets whose values are all present
};

}  // namespace drivetrain::sharding
