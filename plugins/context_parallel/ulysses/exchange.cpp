#include "exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace drivetrain::ulysses {
namespace {

bool all_are(const std::vector<int64_t>& lengths, int64_t length) {
  return std::all_of(lengths.begin(), lengths.end(), [&](int64_t l) { return l == length; });
}

}  // namespace

at::Tensor Exchange::outbox(int64_t numel, at::ScalarType dtype) {
  const auto same = [&](const at::Tensor& t) { return t.scalar_type() == dtype; };
  const auto found = std::find_if(outboxes_.begin(), outboxes_.end(), same);
  if (found != outboxes_.end() && found->numel() >= numel) return found->narrow(0, 0, numel);
  if (found != outboxes_.end()) outboxes_.erase(found);
  outboxes_.push_back(group_->allocate(numel, dtype));
  return outboxes_.back();
}

at::Tensor Exchange::run(const at::Tensor& from, const std::vector<int64_t>& lengths,
                         const std::vector<int64_t>& lengths_here) {
  const at::Tensor got =
      at::empty({std::accumulate(lengths_here.begin(), lengths_here.end(), int64_t{0})}, from.options());
  const bool even = all_are(lengths, lengths_here[0]) && all_are(lengths_here, lengths[0]);
  const WorkPtr work = even ? group_->all_to_all(got, from) : group_->all_to_all(got, from, lengths_here, lengths);
  work->wait();
  return got;
}

}  // namespace drivetrain::ulysses
