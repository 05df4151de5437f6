// One number of a norm, for the kernels that compute it: the same bits in each.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

namespace drivetrain::kernels {

// The multiply-add is written out, so that no compiler chooses another pair in another kernel.
__device__ __forceinline__ float normed(float x, float mean, float rstd, float gain, float bias) {
  return fmaf((x - mean) * rstd, gain, bias);
}

}  // namespace drivetrain::kernels
