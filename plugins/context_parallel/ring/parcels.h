// Parts of tensors that one rank sends straight to another, as one message, while another one arrives.
//
// What is sent is packed into memory of the group; of what arrives the one before stays readable. Nothing is sent where
// there is nothing. Both ends know the sizes. Thread: one call at a time, that of the group. Stream: the current one.
#pragma once

#include <drivetrain/communicator.h>

#include <array>

namespace drivetrain::ring {

class Parcels {
 public:
  explicit Parcels(GroupPtr group) : group_(std::move(group)) {}

  // Starts to send `parts` to rank `to` and to receive `arriving` elements from rank `from`, both of this type.
  void begin(const Tensors& parts, int64_t to, int64_t arriving, int64_t from, at::ScalarType dtype);
  // Waits for both. What arrived, flat; it may be read until begin() was called twice more.
  at::Tensor wait();

 private:
  at::Tensor room(at::Tensor& buffer, int64_t numel, at::ScalarType dtype) const;

  GroupPtr group_;
  at::Tensor packed_;
  std::array<at::Tensor, 2> rooms_;  // flat
  size_t used_ = 0;
  at::Tensor arriving_;
  WorkPtr sent_, received_;
};

}  // namespace drivetrain::ring
