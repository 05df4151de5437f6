#include "parcels.h"

#include <algorithm>

namespace drivetrain::ring {

at::Tensor Parcels::room(at::Tensor& buffer, int64_t numel, at::ScalarType dtype) const {
  if (!buffer.defined() || buffer.numel() < numel || buffer.scalar_type() != dtype)
    buffer = group_->allocate(std::max<int64_t>(numel, 1), dtype);
  return buffer.narrow(0, 0, numel);
}

void Parcels::begin(const Tensors& parts, int64_t to, int64_t arriving, int64_t from, at::ScalarType dtype) {
  int64_t count = 0;
  for (const at::Tensor& part : parts) count += part.numel();
  const at::Tensor packed = room(packed_, count, dtype);
  for (int64_t at = 0; const at::Tensor& part : parts) {
    packed.narrow(0, at, part.numel()).view(part.sizes()).copy_(part);
    at += part.numel();
  }
  used_ = 1 - used_;
  arriving_ = room(rooms_[used_], arriving, dtype);
  sent_ = received_ = completed_work();
  if (count + arriving == 0) return;
  group_->batch_begin();
  if (count > 0) sent_ = group_->send(packed, to);
  if (arriving > 0) received_ = group_->recv(arriving_, from);
  group_->batch_end();
}

at::Tensor Parcels::wait() {
  received_->wait();
  sent_->wait();
  return arriving_;
}

}  // namespace drivetrain::ring
