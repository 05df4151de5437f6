// The optimizer's scalars in memory that stays, so that a recorded update finds each step's values in the same place.
// On the CPU the host writes them there; on a device they go over in one copy from pinned memory,
// and stand in that memory for trainables that stayed on the host. Main thread.
#pragma once

#include <drivetrain/optimizer.h>

#include "contract/device_runtime.h"
#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL UpdateScalars {
 public:
  // `runtime` may be null on the CPU.
  UpdateScalars(int64_t groups, const at::Device& device, DeviceRuntime* runtime);

  const UpdateArgs& args() const { return args_; }
  // For trainables on `device`: the run's, or the host. The host's are there as soon as send() returned.
  const UpdateArgs& args(const at::Device& device) const { return device.is_cpu() ? host_args_ : args_; }

  // Host side, to be filled before send(): lr, weight decay, momentum per group.
  double* hyper() const { return host_.mutable_data_ptr<double>(); }
  // Enqueues the copy. The last one must have arrived: the host has waited for the device since.
  // `skip`: this step updates nothing.
  void send(double grad_scale, int64_t updates_so_far, bool skip = false);

 private:
  int64_t groups_;
  at::Tensor host_,
      device_;  // float64 words: hyper, grad_scale, step (an integer's bits), skip; the same tensor on the CPU
  UpdateArgs args_, host_args_;
};

}  // namespace drivetrain
