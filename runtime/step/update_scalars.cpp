#include "step/update_scalars.h"

#include <ATen/ops/zeros.h>

#include <cstring>

namespace drivetrain {

UpdateScalars::UpdateScalars(int64_t groups, const at::Device& device, DeviceRuntime* runtime) : groups_(groups) {
  const int64_t words = 3 * groups + 3;
  device_ = at::zeros({words}, at::TensorOptions(at::kDouble).device(device));
  host_ = runtime ? runtime->pinned(words, at::kDouble).zero_() : device_;
  const auto word = [&](int64_t i) { return device_.narrow(0, 3 * groups + i, 1); };
  args_.hyper = device_.narrow(0, 0, 3 * groups).view({groups, 3});
  args_.grad_scale = word(0).select(0, 0);
  args_.step = word(1).view(at::kLong).select(0, 0);
  args_.skip = word(2).view(at::kBool).select(0, 0);
}

void UpdateScalars::send(double grad_scale, int64_t updates_so_far) {
  double* words = hyper() + 3 * groups_;
  words[0] = grad_scale;
  std::memcpy(words + 1, &updates_so_far, sizeof updates_so_far);
  words[2] = 0;  // never skipped: what is not finite ends the run before
  if (!device_.is_same(host_)) device_.copy_(host_, /*non_blocking=*/true);
}

}  // namespace drivetrain
