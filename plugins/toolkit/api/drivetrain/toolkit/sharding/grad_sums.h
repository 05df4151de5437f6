// Gradients on their way from the units' slots to the parts that the optimizer reads. A bucket's gradients are summed
// and cut by one reduce-scatter over the ranks that share its state, and the parts summed by one all-reduce over those
// that hold copies of the part. Sums over ranks follow the groups' fixed tree and are added up in the order of the
// micro-batches, so every way of sharding gives the same bits under one `reduce_every` and a communicator that keeps to
// the tree. Sums over groups, one after the other, keep to it where their size is a power of two and nothing is rounded
// to 16 bits in between. Main thread.
#pragma once

#include <deque>
#include <map>
#include <tuple>

#include <drivetrain/toolkit/sharding/buckets.h>

namespace drivetrain::sharding {

class GradSums {
 public:
  GradSums(const ShardingOptions& options, const Dtypes& dtypes, const at::Device& device, const UnitList& units,
           const Buckets& buckets);

  void step_begin();
  // Before a unit's gradients are written (before_grads): its slots have memory, and no sum reads them any more.
  void make_room(int64_t unit);
  // After a visit's gradients are in their slots (after_backward): the buckets of its unit in which the gradients of
  // `reduce_every` micro-batches are together, or all of the step. Counts the visit.
  std::vector<Bucket*> complete(const Visit& visit);
  // Begins the bucket's sum over ranks; its slots take the next gradient afresh. `last`: of this step.
  void begin(Bucket& bucket, bool last);
  // At the end of a step: buckets of units that had no backward are summed too, and every sum is waited for.
  void flush();

 private:
  // One bucket's sum over ranks. `whole` is the bucket's gradient in the type of sums, `sum` this rank's part of it.
  struct Sum {
    Bucket* bucket;
    at::Tensor whole, sum;
    std::vector<at::Tensor> buffers;   // to be given back when it is done
    bool over_replicas = false;        // the second of two steps
    bool first = false, last = false;  // of the bucket in this step
    WorkPtr work;
  };
  static constexpr size_t kLent = 2;  // buffers of one size: one is written while another is summed

  void lend(Bucket& bucket);
  void begin_replicas(Sum& sum);
  void advance(Sum& sum);
  void finish_oldest();
  void finish_all_of(const Bucket& bucket);
  void add_up(const Sum& sum);
  bool converts(const Bucket& bucket) const;
  at::Tensor take(const Bucket& bucket, at::ScalarType dtype);

  struct Shelf {
    std::vector<at::Tensor> free;
    size_t made = 0;
  };
  Shelf& shelf(const Bucket& bucket, at::ScalarType dtype) {
    return shelves_[{bucket.groups.mover().get(), bucket.flat->numel(), dtype}];
  }

  const ShardingOptions& options_;
  const Dtypes dtypes_;
  const at::Device device_;
  const Buckets& buckets_;
  std::vector<std::vector<Bucket*>> by_unit_;
  std::deque<Sum> sums_;  // begun, oldest first
  std::map<std::tuple<const Group*, int64_t, at::ScalarType>, Shelf> shelves_;
};

}  // namespace drivetrain::sharding
