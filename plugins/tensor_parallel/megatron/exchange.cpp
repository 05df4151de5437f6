#include "exchange.h"

#include <ATen/ops/empty.h>

#include <drivetrain/error.h>

namespace drivetrain::megatron {
namespace {

// [B, S, ...] as [ranks, B, s, ...]; a view.
at::Tensor by_rank(const at::Tensor& x, int64_t ranks) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[1] /= ranks;
  sizes.insert(sizes.begin() + 1, ranks);
  return x.view(sizes).transpose(0, 1);
}

}  // namespace

// No view: callers may add to what they got in place, and record that.
at::Tensor Pending::finish() {
  work_->wait();
  work_.reset();
  const at::Tensor given = std::move(tensor_);
  if (!by_rank_) return given.variable_data();
  std::vector<int64_t> sizes = given.sizes().slice(1).vec();  // given: [ranks, B, s, ...]
  sizes[1] *= given.size(0);
  return sizes[0] == 1 ? given.view(sizes).variable_data() : given.transpose(0, 1).reshape(sizes);
}

at::Tensor Exchange::memory(at::IntArrayRef sizes, const at::Tensor& like) const {
  return group_->allocate(c10::multiply_integers(sizes), like.scalar_type()).view(sizes);
}

int64_t Exchange::share(int64_t positions) const {
  if (positions % ranks_ != 0)
    throw fail(ErrorCode::config, "tensor_parallel/megatron: sequence_parallel shares ", positions, " positions over ",
               ranks_, " ranks, and they do not divide. Use sequences of a multiple of ", ranks_,
               ", or turn sequence_parallel off");
  return positions / ranks_;
}

Pending Exchange::gather(const at::Tensor& x, bool in_order) const {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), ranks_);
  const at::Tensor all = memory(sizes, x);
  WorkPtr work = group_->all_gather(all, x.contiguous());
  return {std::move(work), all, in_order};
}

Pending Exchange::gather_positions(const at::Tensor& x) const { return gather(x, true); }

Pending Exchange::gather(const at::Tensor& x) const { return gather(x, false); }

// On the CPU ranks reach each other's memory only where the group allocated it; a device's own is as good.
at::Tensor Exchange::reachable(const at::Tensor& x, bool overwrite) const {
  if (overwrite && !x.is_cpu() && x.is_contiguous()) return x;
  at::Tensor copy = memory(x.sizes(), x);
  copy.copy_(x);
  return copy;
}

Pending Exchange::sum(const at::Tensor& x, bool overwrite) const {
  if (!cuts_positions_) {
    const at::Tensor whole = reachable(x, overwrite);
    WorkPtr work = group_->all_reduce(whole);
    return {std::move(work), whole};
  }
  share(x.size(1));
  const at::Tensor given = reachable(by_rank(x, ranks_), overwrite);
  const at::Tensor own = at::empty(given.sizes().slice(1), x.options());
  WorkPtr work = group_->reduce_scatter(own, given);
  return {std::move(work), own};
}

}  // namespace drivetrain::megatron
