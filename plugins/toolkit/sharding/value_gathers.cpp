#include <drivetrain/toolkit/sharding/value_gathers.h>

#include <algorithm>
#include <utility>

#include <drivetrain/error.h>

namespace drivetrain::sharding {

ValueGathers::ValueGathers(const ShardingOptions& options, const UnitList& units, const Buckets& buckets)
    : options_(options), by_unit_(buckets_by_unit(units, buckets)), home_(homes(buckets)) {
  for (const auto& bucket : buckets) any_sharded_ = any_sharded_ || !bucket->resident;
}

// The last update's gathers are nobody's to wait for; peers still count on this rank's half of them.
ValueGathers::~ValueGathers() {
  for (const auto& [param, bucket] : home_) {
    try {
      finish_gather(*bucket);
    } catch (const Error&) {
      // The run ends by the error that broke the group.
      bucket->gather.reset();
    }
  }
}

// A replay calls no other hook: what was gathered in the step before counts for nothing, whoever gathered it. So every
// step does the same, whether it is recorded or not.
void ValueGathers::step_begin() {
  if (!options_.gather_late) return;
  for (const auto& [param, bucket] : home_)
    if (bucket->trainable && bucket->stays_shared()) any_stale_ = bucket->stale = true;
}

void ValueGathers::use(const Visit& visit, const StepContext& ctx) {
  const std::vector<Bucket*>& own = by_unit_[visit.unit];
  for (Bucket* bucket : own)
    if (bucket->flat->released()) begin_gather(*bucket, visit.direction);
  if (any_stale_) begin_stale(own);
  for (Bucket* bucket : own) {
    finish_gather(*bucket);
    ++bucket->users;
  }
  prefetch(ctx);
}

// Those of this visit first, then all others in the order of their units: each is waited for where it is used.
void ValueGathers::begin_stale(const std::vector<Bucket*>& own) {
  const auto begin = [&](const std::vector<Bucket*>& buckets) {
    for (Bucket* bucket : buckets)
      if (std::exchange(bucket->stale, false)) gather_resident(*bucket);
  };
  begin(own);
  for (const std::vector<Bucket*>& buckets : by_unit_) begin(buckets);
  any_stale_ = false;
}

void ValueGathers::done(const Visit& visit, const StepContext& ctx) {
  for (Bucket* bucket : by_unit_[visit.unit]) {
    --bucket->users;
    if (bucket->resident || bucket->users > 0 || wanted_soon(*bucket, visit, ctx)) continue;
    release(*bucket, visit.direction);
  }
}

void ValueGathers::updated(const Trainables& chunk) {
  Bucket& bucket = *home_.at(chunk.front().param.get());
  if (++bucket.updated < bucket.flat->pieces().size()) return;
  bucket.updated = 0;
  bucket.second_valid = false;
  if (!bucket.stays_shared()) return;
  if (options_.gather_late)
    any_stale_ = bucket.stale = true;
  else
    gather_resident(bucket);
  if (!options_.overlap) finish_gather(bucket);
}

void ValueGathers::gather_resident(Bucket& bucket) {
  finish_gather(bucket);  // of values that nobody has used
  bucket.gather = bucket.groups.shard->all_gather(bucket.flat->values(), bucket.flat->part_values());
}

void ValueGathers::begin_gather(Bucket& bucket, Direction direction) {
  bucket.flat->fill();
  live_ += bucket.flat->numel();
  if (!options_.offload_values) {
    bucket.gather = gather(bucket, direction);
    return;
  }
  // The gather follows its copy on the copies' stream: who computes waits for neither until `finish_gather`.
  bucket.gathered_from_host =
      copies_.run(bucket.flat->values().device(), [&] { bucket.gather = gather(bucket, direction); });
}

WorkPtr ValueGathers::gather(Bucket& bucket, Direction direction) {
  const FlatUnit& flat = *bucket.flat;
  const Groups& groups = bucket.groups;
  if (direction == Direction::backward && bucket.second_valid)
    return groups.backward->all_gather(flat.values(), bucket.second);
  if (!options_.offload_values) return groups.shard->all_gather(flat.values(), flat.part_values());
  const at::Tensor part = flat.values().narrow(0, groups.shard->rank() * flat.part_numel(), flat.part_numel());
  return groups.shard->all_gather(flat.values(), part.copy_(flat.part_values(), /*non_blocking=*/true));
}

void ValueGathers::finish_gather(Bucket& bucket) {
  if (!bucket.gather) return;
  bucket.gathered_from_host.join();
  bucket.gather->wait();
  bucket.gather.reset();
}

void ValueGathers::prefetch(const StepContext& ctx) {
  if (!any_sharded_) return;
  int64_t elements = 0, units = 0;
  const bool by_units = options_.prefetch_units > 0;
  for (const Visit& coming : ctx.ahead()) {
    if (coming.part == Part::weight) continue;  // reads no values
    if (by_units && units++ == options_.prefetch_units) return;
    for (Bucket* bucket : by_unit_[coming.unit]) {
      if (bucket->resident || bucket->users > 0) continue;
      const int64_t numel = bucket->flat->numel();
      if (!by_units && elements >= options_.prefetch) return;  // the one that passes the limit still goes
      elements += numel;
      if (!bucket->flat->released()) continue;
      if (live_ + numel > options_.live) return;
      begin_gather(*bucket, coming.direction);
      if (!options_.overlap) finish_gather(*bucket);
    }
  }
}

bool ValueGathers::uses(int64_t unit, const Bucket& bucket) const {
  return std::find(by_unit_[unit].begin(), by_unit_[unit].end(), &bucket) != by_unit_[unit].end();
}

int64_t ValueGathers::sharded_elements(int64_t unit) const {
  int64_t elements = 0;
  for (const Bucket* bucket : by_unit_[unit]) elements += bucket->resident ? 0 : bucket->flat->numel();
  return elements;
}

bool ValueGathers::wanted_soon(const Bucket& bucket, const Visit& visit, const StepContext& ctx) const {
  if (live_ > options_.live) return false;
  const bool wait_for_backward = !options_.release_after_forward && visit.direction == Direction::forward;
  int64_t distance = 0;
  for (const Visit& coming : ctx.ahead()) {
    if (coming.part == Part::weight) continue;  // reads no values
    if (uses(coming.unit, bucket)) return true;
    distance += sharded_elements(coming.unit);
    if (!wait_for_backward && distance > options_.reuse_distance) return false;
  }
  return false;
}

void ValueGathers::release(Bucket& bucket, Direction direction) {
  if (bucket.second.defined() && !bucket.second_valid && direction == Direction::forward) {
    const int64_t part = bucket.second.numel();
    bucket.second.copy_(bucket.flat->values().narrow(0, bucket.groups.backward->rank() * part, part));
    bucket.second_valid = true;
  }
  bucket.flat->release();
  live_ -= bucket.flat->numel();
}

}  // namespace drivetrain::sharding
