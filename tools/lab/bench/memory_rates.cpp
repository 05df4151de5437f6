#include "bench/memory_rates.h"

#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>

#include <drivetrain/toolkit/layers/linear.h>

#include "bench/bandwidth.h"
#include "bench/block_rates.h"
#include "bench/optimizer_step.h"

namespace drivetrain {
namespace {

constexpr double kPassBytes = 64 << 20;
constexpr double kMomentBytes = 8;  // of two float32 moments
// Parameters that are updated: on a GPU so many that its host is faster at starting kernels than they are.
constexpr int64_t kEndElements = 32 << 20, kEndElementsOnGpu = 256 << 20;
constexpr int64_t kEndRounds = 7;

// Bytes per second of passes as blocks make them between their products. On a processor their arithmetic takes longer
// than their bytes.
double arithmetic_rate(const at::Device& device) {
  const double scale = device.is_cpu() ? 1 : 8, hidden = 512 * scale;
  ModelShape shape;
  shape.hidden = hidden, shape.heads = shape.groups = hidden / 64, shape.head_dim = 64, shape.ffn = 4 * hidden;
  return pass_rate(device, shape, static_cast<int64_t>(512 * scale));
}

// The same of a root, a quotient and a sum over arrays that no cache holds, as an update with two moments.
double update_rate(const at::Device& device) {
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const auto elements = static_cast<int64_t>(kPassBytes / 4);
  at::Tensor value = at::rand({elements}, options), root = at::empty_like(value);
  const at::Tensor moment = at::rand({elements}, options), square = at::rand({elements}, options).add(1.0);
  const double seconds = typical_seconds(device, [&] {
    at::sqrt_out(root, square);
    at::addcdiv_out(value, value, moment, root, -1e-6);
  });
  return 6 * 4 * static_cast<double>(elements) / seconds;
}

double triad_rate(const at::Device& device) {
  Bandwidth bandwidth(device);
  const MemoryLoops& loops = bandwidth.loops_at(kPassBytes);
  return loops.bytes.front() / typical_seconds(device, loops.works.front());
}

// The first installed optimizer that keeps two moments; null without one.
std::shared_ptr<Optimizer> optimizer_with_two_moments(const RankAlone& rank) {
  const Registry& plugins = rank.registry();
  const Param matrix("matrix", Layout::whole({2, 2}), InitRule::zeros());
  for (const std::string& name : plugins.names(Optimizer::kKind)) {
    auto optimizer =
        plugins.create<Optimizer>(name, plugins.options(Optimizer::kKind, name).defaults().get(), rank.services());
    if (optimizer->state_bytes_per_element(matrix) == kMomentBytes) return optimizer;
  }
  return nullptr;
}

struct EndRates {
  double update = 0, norm = 0;  // bytes per second
};

// Of the end of a step, over parameters as large as a block's: where their moments lie is for the allocator to say, and
// all of them together are more than the last cache holds, which programs share. Behind products, as in a step: in
// rounds of nothing else an update was measured at twice the rate of a step's.
EndRates measure_end(const RankAlone& rank) {
  const at::Device device = rank.device();
  const auto optimizer = optimizer_with_two_moments(rank);
  if (!optimizer) {
    const double update = update_rate(device);
    return {update, update};
  }
  const int64_t elements = device.is_cpu() ? kEndElements : kEndElementsOnGpu, side = device.is_cpu() ? 1024 : 4096;
  const OptimizerPieces pieces(elements, {side, side}, device);
  OptimizerStep end(optimizer, pieces, device);
  const at::Tensor x = at::rand({1024, 1024}, pieces.value.options());
  const auto products = [&] {
    for (int i = 0; i < 10; ++i) product(x, x);
  };
  const auto seconds = take_turns(device, {[&] { end.norm(); }, [&] { end.update(); }, products}, kEndRounds);
  const auto rate = [&](size_t i, double bytes) {
    return bytes * static_cast<double>(elements) / spread_of(seconds[i]).median;
  };
  return {rate(1, 2 * (4 + kMomentBytes) + 4), rate(0, 4)};
}

}  // namespace

MemoryRates measure_memory_rates(const RankAlone& rank) {
  const double triad = triad_rate(rank.device()), arithmetic = arithmetic_rate(rank.device());
  const EndRates end = measure_end(rank);
  const double most = std::max({triad, arithmetic, end.update, end.norm});
  MemoryRates rates;
  rates.gb_per_s = most / 1e9, rates.share = end.update / most;
  rates.arithmetic_share = arithmetic / most, rates.norm_share = end.norm / most;
  return rates;
}

HostMemoryRates measure_host_memory() {
  const double triad = triad_rate(at::kCPU), update = update_rate(at::kCPU);
  return {std::max(triad, update) / 1e9, update / std::max(triad, update)};
}

}  // namespace drivetrain
