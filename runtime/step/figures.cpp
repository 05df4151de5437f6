#include "step/figures.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace drivetrain {
namespace {

constexpr int64_t kNumbers = sizeof(RankFigures) / sizeof(double), kOfDevice = 2;
static_assert(std::is_trivially_copyable_v<RankFigures> && offsetof(RankFigures, squares) == sizeof(double) &&
              offsetof(RankFigures, tokens) == kOfDevice * sizeof(double));

}  // namespace

Figures::Figures(GroupPtr world, Sharers sharers, const at::Device& device, DeviceRuntime* runtime)
    : world_(std::move(world)), sharers_(std::move(sharers)) {
  buffer_ = at::zeros({kNumbers}, at::TensorOptions(at::kDouble).device(device));
  loss_ = buffer_.select(0, 0), squares_ = buffer_.select(0, 1);
  constexpr int64_t known = kNumbers - kOfDevice;
  known_ = runtime ? runtime->pinned(known, at::kDouble) : at::empty({known}, at::TensorOptions(at::kDouble));
  if (world_->size() > 1) all_ = at::empty({world_->size() * kNumbers}, buffer_.options());
}

// Of all ranks, one after another.
std::vector<RankFigures> Figures::read(RankFigures mine) {
  if (!all_.defined()) {  // only what the device has is read: 16 bytes
    const at::Tensor host = buffer_.narrow(0, 0, kOfDevice).to(at::kCPU);
    std::memcpy(&mine, host.const_data_ptr<double>(), host.nbytes());
    return {mine};
  }
  std::memcpy(known_.mutable_data_ptr<double>(), reinterpret_cast<const double*>(&mine) + kOfDevice, known_.nbytes());
  buffer_.narrow(0, kOfDevice, known_.numel()).copy_(known_, /*non_blocking=*/true);
  const WorkPtr gathered = world_->all_gather(all_, buffer_);
  gathered->wait();
  const at::Tensor host = all_.to(at::kCPU);
  // On a device the host was waiting in the line above. If the run was aborted meanwhile, the figures are of no step,
  // and what was recorded with the communicator cannot be replayed: this says so.
  if (!host.is_same(all_)) gathered->wait();
  std::vector<RankFigures> all(static_cast<size_t>(world_->size()));
  std::memcpy(all.data(), host.const_data_ptr<double>(), host.nbytes());
  return all;
}

SharedFigures Figures::exchange(RankFigures mine) {
  SharedFigures shared;
  shared.ranks = read(std::move(mine));
  const auto of = [&](int64_t rank) -> const RankFigures& { return shared.ranks[static_cast<size_t>(rank)]; };
  for (const int64_t rank : sharers_.losses) shared.loss += of(rank).loss;
  for (const int64_t rank : sharers_.tokens) {
    shared.rows.tokens += static_cast<int64_t>(of(rank).tokens);
    shared.rows.documents += static_cast<int64_t>(of(rank).documents);
    shared.rows.padding += static_cast<int64_t>(of(rank).padding);
  }
  shared.squares = of(world_->rank()).squares;
  shared.seconds = of(0).seconds;
  for (const RankFigures& one : shared.ranks) {
    shared.memory = std::max(shared.memory, one.memory);
    shared.reserved = std::max(shared.reserved, one.reserved);
    shared.host_memory = std::max(shared.host_memory, one.host_memory);
    shared.signal = std::max(shared.signal, static_cast<int>(one.signal));
    shared.beside = std::max(shared.beside, static_cast<Beside>(static_cast<int>(one.beside)));
    shared.named = std::max(shared.named, static_cast<int64_t>(one.named));
  }
  return shared;
}

}  // namespace drivetrain
