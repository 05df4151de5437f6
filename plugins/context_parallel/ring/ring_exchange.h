// Passes a tensor round the ring: every rank sends its tensor to the next rank and receives the one of the rank before.
//
// Two buffers of the group's memory alternate; they are kept for the next round. Ranks make the same calls in the same
// order; other exchanges may be pending at the same time. Thread: one call at a time, that of the group. Stream: the
// current one.
#pragma once

#include <drivetrain/communicator.h>

#include <array>

namespace drivetrain::ring {

class RingExchange {
 public:
  explicit RingExchange(GroupPtr group) : group_(std::move(group)) {}

  // Gives current() this shape and memory, uninitialised. The caller writes the tensor to send into it.
  void allocate(at::IntArrayRef sizes, at::ScalarType dtype);
  const at::Tensor& current() const { return current_; }
  // Starts to send current() and to receive the next one. Until wait(), current() may be read, not written.
  void begin();
  // Waits for both; current() is then the received tensor.
  void wait();

 private:
  GroupPtr group_;
  std::array<at::Tensor, 2> buffers_;  // flat
  size_t used_ = 0;
  at::Tensor current_, arriving_;
  WorkPtr sent_, received_;
};

}  // namespace drivetrain::ring
