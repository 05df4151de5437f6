#include <drivetrain/toolkit/sharding/grad_sums.h>

#include <ATen/ops/empty.h>

#include <algorithm>

namespace drivetrain::sharding {

GradSums::GradSums(const ShardingOptions& options, const Dtypes& dtypes, const at::Device& device,
                   const UnitList& units, const Buckets& buckets)
    : options_(options),
      dtypes_(dtypes),
      device_(device),
      buckets_(buckets),
      by_unit_(buckets_by_unit(units, buckets)) {}

// Sums over ranks are in a type of their own.
bool GradSums::converts(const Bucket& bucket) const { return dtypes_.reduce != dtypes_.grad && bucket.groups.sums(); }

void GradSums::step_begin() {
  for (const auto& bucket : buckets_) bucket->visits = bucket->sums = 0;
}

void GradSums::attach_buffer(Bucket& bucket) {
  if (bucket.temporary_grads && !bucket.flat->grads().defined()) bucket.flat->attach_grads(take(bucket, dtypes_.grad));
}

// A parameter that several units use gathers their gradients in one slot, in the bucket of the first unit,
// whose backward is last.
void GradSums::make_room(const Visit& visit) {
  for (Bucket* bucket : by_unit_[visit.unit]) {
    if (!bucket->temporary_grads) finish_all_of(*bucket);  // the slots are about to be written again
    if (bucket->trainable) attach_buffer(*bucket);
  }
}

void GradSums::begin_complete(const Visit& visit) {
  for (Bucket* bucket : by_unit_[visit.unit]) {
    if (bucket->unit != visit.unit || !bucket->trainable) continue;
    ++bucket->visits;
    const bool complete = options_.reduce_every > 0 && bucket->visits % options_.reduce_every == 0;
    if (visit.last || complete) begin(*bucket, visit.last);
  }
}

void GradSums::begin(Bucket& bucket, bool last) {
  FlatUnit& flat = *bucket.flat;
  flat.zero_unwritten_grads();
  Sum sum;
  sum.bucket = &bucket, sum.last = last;
  sum.first = bucket.sums++ == 0;
  sum.whole = flat.grads();
  if (bucket.temporary_grads) sum.buffers.push_back(flat.grads());
  if (converts(bucket)) {
    sum.whole = take(bucket, dtypes_.reduce).copy_(flat.grads());
    sum.buffers.push_back(sum.whole);
  }
  if (const GroupPtr& shard = bucket.groups.shard; shard->size() > 1) {
    const bool into_part = sum.first && !converts(bucket);
    sum.sum = into_part ? flat.part_grads() : sum.whole.narrow(0, shard->rank() * flat.part_numel(), flat.part_numel());
    sum.work = shard->reduce_scatter(sum.sum, sum.whole);
  } else {
    sum.sum = sum.whole;
    begin_replicas(sum);
  }
  for (const ParamPtr& param : flat.params()) param->restart_grad();
  if (bucket.temporary_grads) flat.detach_grads();
  sums_.push_back(std::move(sum));
  if (!options_.overlap) finish_oldest();
}

void GradSums::begin_replicas(Sum& sum) {
  sum.over_replicas = true;
  const GroupPtr& replica = sum.bucket->groups.replica;
  sum.work = replica->size() > 1 ? replica->all_reduce(sum.sum) : completed_work();
}

// Waits for the first of the two steps and begins the second.
void GradSums::advance(Sum& sum) {
  if (sum.over_replicas) return;
  sum.work->wait();
  begin_replicas(sum);
}

void GradSums::finish_oldest() {
  Sum sum = std::move(sums_.front());
  sums_.pop_front();
  advance(sum);
  sum.work->wait();
  add_up(sum);
  // Beside the backward passes that follow; nobody writes the part again before `flush`.
  if (sum.last && sum.bucket->flat->has_host_grads())
    copied_ = copies_.run(device_, [&] { sum.bucket->flat->copy_grads_to_host(); });
  for (const at::Tensor& buffer : sum.buffers) pool(*sum.bucket, buffer.scalar_type()).free.push_back(buffer);
}

void GradSums::finish_all_of(const Bucket& bucket) {
  const auto its = [&](const Sum& sum) { return sum.bucket == &bucket; };
  while (std::any_of(sums_.begin(), sums_.end(), its)) finish_oldest();
}

// In order of micro-batches, since sums of one bucket finish in the order in which they began.
void GradSums::add_up(const Sum& sum) {
  at::Tensor part = sum.bucket->flat->part_grads();
  if (part.const_data_ptr() == sum.sum.const_data_ptr()) return;
  if (sum.first)
    part.copy_(sum.sum);
  else
    part.add_(sum.sum);
}

void GradSums::flush() {
  for (const auto& bucket : buckets_) {  // of units that had no backward
    if (!bucket->trainable || bucket->sums > 0) continue;
    attach_buffer(*bucket);
    begin(*bucket, true);
  }
  for (Sum& sum : sums_) advance(sum);
  while (!sums_.empty()) finish_oldest();
  copied_.join();  // the last one; they are in order
}

at::Tensor GradSums::take(const Bucket& bucket, at::ScalarType dtype) {
  BufferPool& place = pool(bucket, dtype);
  const int64_t numel = bucket.flat->numel();
  while (place.free.empty() && place.made >= kLent && !sums_.empty()) finish_oldest();
  if (place.free.empty()) {
    ++place.made;
    const GroupPtr& mover = bucket.groups.mover();
    if (mover->size() > 1) return mover->allocate(numel, dtype);
    return at::empty({numel}, at::TensorOptions().dtype(dtype).device(device_));
  }
  at::Tensor buffer = place.free.back();
  place.free.pop_back();
  return buffer;
}

}  // namespace drivetrain::sharding
