// A tensor that travels round the ring: every rank has one, sends it to the next rank and gets that of the rank before.
//
// Two buffers change places; they are the group's memory and stay for the next journey. Ranks make the same calls in
// the same order; other travellers may be under way meanwhile. Thread: one call at a time, that of the group. Stream:
// the current one.
#pragma once

#include <drivetrain/communicator.h>

#include <array>

namespace drivetrain::ring {

class Traveller {
 public:
  explicit Traveller(GroupPtr group) : group_(std::move(group)) {}

  // Memory for the next journey; what is written into here() travels.
  void start(at::IntArrayRef sizes, at::ScalarType dtype);
  const at::Tensor& here() const { return here_; }
  // Starts to send here() and to receive what arrives. here() may be read until arrive(), not written.
  void depart();
  // Waits; here() is then what came.
  void arrive();

 private:
  GroupPtr group_;
  std::array<at::Tensor, 2> buffers_;  // flat
  size_t used_ = 0;
  at::Tensor here_, arriving_;
  WorkPtr sent_, received_;
};

}  // namespace drivetrain::ring
