#include "step/figures.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace drivetrain {
namespace {

// Places in a rank's buffer; the first two are the device's.
enum Place {
  loss_place,
  squares_place,
  tokens_place,
  documents_place,
  padding_place,
  memory_place,
  reserved_place,
  host_memory_place,
  signal_place,
  beside_place,
  named_place,
  seconds_place,
  save_after_place,
  save_policies_place,
  lr_place,
  hyper_place,
  work_place,  // one for each part
  places = work_place + static_cast<int>(kWorkParts)
};

}  // namespace

Figures::Figures(GroupPtr world, Sharers sharers, const at::Device& device, DeviceRuntime* runtime)
    : world_(std::move(world)), sharers_(std::move(sharers)) {
  buffer_ = at::zeros({places}, at::TensorOptions(at::kDouble).device(device));
  loss_ = buffer_.select(0, loss_place);
  squares_ = buffer_.select(0, squares_place);
  constexpr int64_t known = places - tokens_place;
  known_ = runtime ? runtime->pinned(known, at::kDouble) : at::empty({known}, at::TensorOptions(at::kDouble));
  if (world_->size() > 1) all_ = at::empty({world_->size() * places}, buffer_.options());
}

// All places of all ranks, one after another.
std::vector<double> Figures::read(const HostFigures& mine) {
  double* known = known_.mutable_data_ptr<double>();
  const auto set = [&](Place place, double value) { known[place - tokens_place] = value; };
  set(tokens_place, static_cast<double>(mine.rows.tokens));
  set(documents_place, static_cast<double>(mine.rows.documents));
  set(padding_place, static_cast<double>(mine.rows.padding));
  set(memory_place, mine.memory), set(reserved_place, mine.reserved), set(host_memory_place, mine.host_memory);
  set(signal_place, mine.signal), set(beside_place, static_cast<double>(mine.beside)), set(seconds_place, mine.seconds);
  set(named_place, static_cast<double>(mine.named));
  set(save_after_place, mine.alike.save_after), set(save_policies_place, mine.alike.save_policies);
  set(lr_place, mine.alike.lr), set(hyper_place, mine.alike.hyper);
  std::copy(mine.work.begin(), mine.work.end(), known + (work_place - tokens_place));
  if (!all_.defined()) {  // only what the device has is read: 16 bytes
    const at::Tensor host = buffer_.narrow(0, 0, tokens_place).to(at::kCPU);
    const double* first = host.const_data_ptr<double>();
    std::vector<double> all(first, first + tokens_place);
    all.insert(all.end(), known, known + known_.numel());
    return all;
  }
  buffer_.narrow(0, tokens_place, known_.numel()).copy_(known_, /*non_blocking=*/true);
  const WorkPtr gathered = world_->all_gather(all_, buffer_);
  gathered->wait();
  const at::Tensor host = all_.to(at::kCPU);
  // On a device the host was waiting in the line above. If the run was aborted meanwhile, the figures are of no step,
  // and what was recorded with the communicator cannot be replayed: this says so.
  if (!host.is_same(all_)) gathered->wait();
  const double* first = host.const_data_ptr<double>();
  return {first, first + host.numel()};
}

SharedFigures Figures::exchange(const HostFigures& mine) {
  const std::vector<double> all = read(mine);
  const bool alone = !all_.defined();
  const auto of = [&](int64_t rank) { return all.data() + (alone ? 0 : rank * places); };
  SharedFigures shared;
  for (const int64_t rank : sharers_.losses) shared.loss += of(rank)[loss_place];
  const auto sum = [&](Place place) {
    double total = 0;
    for (const int64_t rank : sharers_.tokens) total += of(rank)[place];
    return static_cast<int64_t>(total);
  };
  shared.rows = {sum(tokens_place), sum(documents_place), sum(padding_place)};
  shared.squares = of(world_->rank())[squares_place];
  shared.seconds = of(0)[seconds_place];
  for (int64_t rank = 0; rank < world_->size(); ++rank) {
    const double* one = of(rank);
    shared.memory = std::max(shared.memory, one[memory_place]);
    shared.reserved = std::max(shared.reserved, one[reserved_place]);
    shared.host_memory = std::max(shared.host_memory, one[host_memory_place]);
    shared.signal = std::max(shared.signal, static_cast<int>(one[signal_place]));
    shared.beside = std::max(shared.beside, static_cast<Beside>(static_cast<int>(one[beside_place])));
    shared.named = std::max(shared.named, static_cast<int64_t>(one[named_place]));
    std::copy_n(one + work_place, kWorkParts, shared.work.emplace_back().begin());
    shared.alike.push_back({one[save_after_place], one[save_policies_place], one[lr_place], one[hyper_place]});
  }
  return shared;
}

}  // namespace drivetrain
