#include "checkpoint/host_copies.h"

#include <ATen/ops/empty.h>

#include <cstring>

namespace drivetrain {
namespace {

// By one thread and without LibTorch's pool of threads, which training uses meanwhile. Rows are contiguous, or LibTorch
// copies.
void copy_on_host(const at::Tensor& from, const at::Tensor& into) {
  const auto item = static_cast<int64_t>(from.element_size());
  if (from.size(1) > 1 && from.stride(1) != 1) {
    into.copy_(from);
    return;
  }
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(into.mutable_data_ptr());
  const int64_t row = from.size(1) * item, distance = from.stride(0) * item;
  if (row == distance) {
    std::memcpy(target, source, static_cast<size_t>(row * from.size(0)));
    return;
  }
  for (int64_t i = 0; i < from.size(0); ++i)
    std::memcpy(target + i * row, source + i * distance, static_cast<size_t>(row));
}

}  // namespace

std::vector<StateSlice> HostCopies::begin(const std::vector<HeldPart>& parts, const std::vector<bool>& writes,
                                          bool may_wait) {
  std::vector<StateSlice> slices;
  rest_.clear();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!writes[i]) continue;
    const HeldPart& part = parts[i];
    const at::Tensor& into = memory(slices.size(), part.view);
    if (may_wait && part.view.is_cpu() && part.changes == StateOwner::Changes::at_update)
      rest_.push_back({part.view, into});
    else
      into.copy_(part.view);
    slices.push_back({part.name, part.shape, part.box, into});
  }
  done_ = !may_wait;
  return slices;
}

void HostCopies::copy_rest() noexcept {
  for (const Copy& copy : rest_) copy_on_host(copy.from, copy.into);
  rest_.clear();
  done_ = true;
  done_.notify_all();
}

void HostCopies::wait() const { done_.wait(false); }

at::Tensor& HostCopies::memory(size_t number, const at::Tensor& view) {
  if (number == memory_.size()) memory_.emplace_back();
  at::Tensor& found = memory_[number];
  if (!found.defined() || found.sizes() != view.sizes() || found.scalar_type() != view.scalar_type())
    found = at::empty(view.sizes(), view.options().device(at::kCPU));
  return found;
}

}  // namespace drivetrain
