#include "data/device_batches.h"

#include <ATen/ops/empty.h>

namespace drivetrain {

Batch DeviceBatches::put(int64_t micro, Batch host) {
  if (!runtime_) return host;
  const auto move = [this](at::Tensor& rows, at::Tensor& place) {
    if (rows.defined()) copy(place, rows), rows = place;
  };
  Places& places = places_[micro];
  move(host.tokens_BS, places.tokens);
  move(host.position_ids_BS, places.position_ids);
  move(host.labels_BS, places.labels);
  return host;
}

void DeviceBatches::copy(at::Tensor& place, const at::Tensor& host) {
  // Batches of one owner have one shape: here another one is the first of a run.
  if (!place.defined() || place.sizes() != host.sizes())
    place = at::empty(host.sizes(), host.options().device(device_));
  at::Tensor pinned = runtime_->pinned(host.numel(), host.scalar_type()).view(host.sizes());
  pinned.copy_(host);
  place.copy_(pinned, /*non_blocking=*/true);
}

}  // namespace drivetrain
