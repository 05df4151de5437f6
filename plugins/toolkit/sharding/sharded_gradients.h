// Gradients on their way from the units' slots to the parts that the optimizer reads: one sum over ranks per bucket and
// `reduce_every` micro-batches, begun when the slots are complete. Main thread.
#pragma once

#include <deque>
#include <map>
#include <tuple>

#include "sharded_bucket.h"

namespace drivetrain::sharding {

class Gradients {
 public:
  Gradients(const ShardingOptions& options, const Dtypes& dtypes, const at::Device& device, const UnitList& units,
            const Buckets& buckets);

  void step_begin();
  void before_grads(const Visit& visit);
  void after_backward(const Visit& visit);
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
  void begin_sum(Bucket& bucket, bool last);
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
