// Gradient reduction of a sharding strategy: from the units' slots to the parts that the optimizer reads. A
// reduce-scatter over the shard group sums a bucket's gradients; then an all-reduce over the replica group sums the
// parts. Sums over ranks use the groups' fixed tree (communicator.h) and are added in the order of the micro-batches.
// So all ways of sharding give the same bits, if `reduce_every` is the same and the communicator uses the tree. With
// both groups this needs sizes that are powers of two and no rounding to 16 bits between the two sums. Main thread.
#pragma once

#include <deque>
#include <map>
#include <tuple>

#include <drivetrain/toolkit/copy_stream.h>
#include <drivetrain/toolkit/sharding/buckets.h>

namespace drivetrain::sharding {

class GradSums {
 public:
  GradSums(const ShardingOptions& options, const Dtypes& dtypes, const at::Device& device, const UnitList& units,
           const Buckets& buckets);

  // From Strategy::step_begin.
  void step_begin();
  // From before_grads. On return the slots of the visit's unit have memory, and no pending sum reads them.
  void make_room(const Visit& visit);
  // From after_backward, once per visit. Starts the sum over ranks of every bucket of the unit whose slots now hold the
  // gradients of `reduce_every` micro-batches, or the last ones of the step; the next gradient overwrites these slots.
  // Collective.
  void begin_complete(const Visit& visit);
  // From flush_grads. Sums the buckets of units that had no backward too, and waits for every sum. Collective.
  void flush();

 private:
  // One bucket's sum over ranks. `whole` is the bucket's gradient in the type of sums, `sum` this rank's part of it.
  struct Sum {
    Bucket* bucket;
    at::Tensor whole, sum;
    std::vector<at::Tensor> buffers;   // returned to their pool afterwards
    bool over_replicas = false;        // the second of two steps
    bool first = false, last = false;  // of the bucket in this step
    WorkPtr work;
  };
  static constexpr size_t kLent = 2;  // buffers of one size: one is written while another is summed

  void begin(Bucket& bucket, bool last);  // `last`: of this step
  void attach_buffer(Bucket& bucket);
  void begin_replicas(Sum& sum);
  void advance(Sum& sum);
  void finish_oldest();
  void finish_all_of(const Bucket& bucket);
  void add_up(const Sum& sum);
  bool converts(const Bucket& bucket) const;
  at::Tensor take(const Bucket& bucket, at::ScalarType dtype);

  struct BufferPool {
    std::vector<at::Tensor> free;
    size_t made = 0;
  };
  BufferPool& pool(const Bucket& bucket, at::ScalarType dtype) {
    return pools_[{bucket.groups.mover().get(), bucket.flat->numel(), dtype}];
  }

  const ShardingOptions& options_;
  const Dtypes dtypes_;
  const at::Device device_;
  const Buckets& buckets_;
  std::vector<std::vector<Bucket*>> by_unit_;
  std::deque<Sum> sums_;  // begun, oldest first
  CopyStream copies_;     // to the host
  CopyStream::Moment copied_;
  std::map<std::tuple<const Group*, int64_t, at::ScalarType>, BufferPool> pools_;
};

}  // namespace drivetrain::sharding
