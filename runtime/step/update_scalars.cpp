#include "step/update_scalars.h"

#include <ATen/ops/zeros.h>

#include <cstring>

namespace drivetrain {
namespace {

// Views of the words of one memory.
UpdateArgs views_of(const at::Tensor& words, int64_t groups) {
  const auto word = [&](int64_t i) { return words.narrow(0, 3 * groups + i, 1); };
  UpdateArgs args;
  args.hyper = words.narrow(0, 0, 3 * groups).view({groups, 3});
  args.grad_scale = word(0).select(0, 0);
  args.step = word(1).view(at::kLong).select(0, 0);
  args.skip = word(2).view(at::kBool).select(0, 0);
  return args;
}

}  // namespace

UpdateScalars::UpdateScalars(int64_t groups, const at::Device& device, DeviceRuntime* runtime) : groups_(groups) {
  const int64_t words = 3 * groups + 3;
  device_ = at::zeros({words}, at::TensorOptions(at::kDouble).device(device));
  host_ = runtime ? runtime->pinned(words, at::kDouble).zero_() : device_;
  args_ = views_of(device_, groups);
  host_args_ = views_of(host_, groups);
}

void UpdateScalars::send(double grad_scale, int64_t updates_so_far, bool skip) {
  double* words = hyper() + 3 * groups_;
  words[0] = grad_scale;
  std::memcpy(words + 1, &updates_so_far, sizeof updates_so_far);
  words[2] = 0;
  std::memcpy(words + 2, &skip, sizeof skip);
  if (!device_.is_same(host_)) device_.copy_(host_, /*non_blocking=*/true);
}

}  // namespace drivetrain
