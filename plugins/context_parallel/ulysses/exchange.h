// One message from every rank to every rank of a group, each of its own length.
//
// Owns the memory that messages are sent from. Thread: one call at a time, that of the group. Stream: the current one.
#pragma once

#include <drivetrain/communicator.h>

#include <vector>

namespace drivetrain::ulysses {

class Exchange {
 public:
  explicit Exchange(GroupPtr group) : group_(std::move(group)) {}

  const Group& group() const { return *group_; }
  // Uninitialised memory for `numel` values to be sent; valid until the next call.
  at::Tensor outbox(int64_t numel, at::ScalarType dtype);
  // `from` holds lengths[j] values for each rank j, in rank order. Returns what the ranks have for this one, in rank
  // order, lengths_here[i] values from rank i; one tensor of its own. All ranks call it.
  at::Tensor run(const at::Tensor& from, const std::vector<int64_t>& lengths, const std::vector<int64_t>& lengths_here);

 private:
  GroupPtr group_;
  std::vector<at::Tensor> outboxes_;  // one per dtype, as large as the largest
};

}  // namespace drivetrain::ulysses
