#include "bench/bandwidth.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <drivetrain/toolkit/vector_clones.h>

namespace drivetrain {
namespace {

DRIVETRAIN_VECTOR_CLONES __attribute__((optimize("O3"))) void triad_loop(float* __restrict a, const float* __restrict b,
                                                                         const float* __restrict c, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] = b[i] + 0.5F * c[i];
}

DRIVETRAIN_VECTOR_CLONES __attribute__((optimize("O3"))) void update_loop(float* __restrict a,
                                                                          const float* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] = 0.5F * a[i] + b[i];
}

TimedWork triad(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  if (!a.is_cpu())
    return [=] {
      at::Tensor to = a;
      at::add_out(to, b, c, 0.5);
    };
  return [=] {
    at::parallel_for(0, a.numel(), 1, [&](int64_t begin, int64_t end) {
      triad_loop(a.mutable_data_ptr<float>() + begin, b.const_data_ptr<float>() + begin,
                 c.const_data_ptr<float>() + begin, end - begin);
    });
  };
}

TimedWork update(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu())
    return [=] {
      at::Tensor to = a;
      at::add_out(to, a, b, 0.5);
    };
  return [=] {
    at::parallel_for(0, a.numel(), 1, [&](int64_t begin, int64_t end) {
      update_loop(a.mutable_data_ptr<float>() + begin, b.const_data_ptr<float>() + begin, end - begin);
    });
  };
}

}  // namespace

std::vector<double> least_seconds(const at::Device& device, const std::vector<TimedWork>& works, int64_t rounds) {
  constexpr double kLeastTogether = 0.2;
  constexpr int64_t kMost = 2000;
  std::vector<double> least(works.size(), std::numeric_limits<double>::infinity());
  for (const TimedWork& work : works) work();
  // A measurement on a GPU is of many calls.
  const auto start = std::chrono::steady_clock::now();
  const auto together = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (int64_t i = 0; i < rounds || (together() < kLeastTogether && i < kMost); ++i)
    for (size_t w = 0; w < works.size(); ++w) least[w] = std::min(least[w], seconds_of_each(device, works[w]));
  return least;
}

const MemoryLoops& Bandwidth::loops_at(double bytes) {
  const int size = static_cast<int>(std::lround(std::log2(bytes)));
  const auto known = known_.find(size);
  if (known != known_.end()) return known->second;
  const double elements = std::exp2(size) / 4;
  const auto array = [&](int arrays) {
    return at::ones({static_cast<int64_t>(elements / arrays)}, at::TensorOptions(at::kFloat).device(device_));
  };
  MemoryLoops loops;
  loops.works = {triad(array(3), array(3), array(3)), update(array(2), array(2))};
  for (const int arrays : {3, 2}) loops.bytes.push_back(12 * std::floor(elements / arrays));
  return known_[size] = std::move(loops);
}

}  // namespace drivetrain
