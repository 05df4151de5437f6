#include "ring_exchange.h"

#include <c10/util/accumulate.h>

namespace drivetrain::ring {

void RingExchange::allocate(at::IntArrayRef sizes, at::ScalarType dtype) {
  const int64_t numel = c10::multiply_integers(sizes);
  for (at::Tensor& buffer : buffers_)
    if (!buffer.defined() || buffer.numel() < numel || buffer.scalar_type() != dtype)
      buffer = group_->allocate(numel, dtype);
  used_ = 0;
  current_ = buffers_[0].narrow(0, 0, numel).view(sizes);
}

void RingExchange::begin() {
  const int64_t ranks = group_->size(), me = group_->rank();
  arriving_ = buffers_[1 - used_].narrow(0, 0, current_.numel()).view(current_.sizes());
  group_->batch_begin();
  sent_ = group_->send(current_, (me + 1) % ranks);
  received_ = group_->recv(arriving_, (me + ranks - 1) % ranks);
  group_->batch_end();
}

void RingExchange::wait() {
  received_->wait();
  sent_->wait();
  current_ = arriving_;
  used_ = 1 - used_;
}

}  // namespace drivetrain::ring
