#include "traveller.h"

#include <c10/util/accumulate.h>

namespace drivetrain::ring {

void Traveller::start(at::IntArrayRef sizes, at::ScalarType dtype) {
  const int64_t numel = c10::multiply_integers(sizes);
  for (at::Tensor& buffer : buffers_)
    if (!buffer.defined() || buffer.numel() < numel || buffer.scalar_type() != dtype)
      buffer = group_->allocate(numel, dtype);
  used_ = 0;
  here_ = buffers_[0].narrow(0, 0, numel).view(sizes);
}

void Traveller::depart() {
  const int64_t ranks = group_->size(), me = group_->rank();
  arriving_ = buffers_[1 - used_].narrow(0, 0, here_.numel()).view(here_.sizes());
  group_->batch_begin();
  sent_ = group_->send(here_, (me + 1) % ranks);
  received_ = group_->recv(arriving_, (me + ranks - 1) % ranks);
  group_->batch_end();
}

void Traveller::arrive() {
  received_->wait();
  sent_->wait();
  here_ = arriving_;
  used_ = 1 - used_;
}

}  // namespace drivetrain::ring
