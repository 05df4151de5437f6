// What a plugin returned against what was wanted. No state; any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "internal.h"

namespace drivetrain {

struct WantedTensor {
  at::IntArrayRef sizes;
  at::ScalarType dtype;
  at::Device device;
};

// "" if it fits, else "wanted float32 [2, 3] on cpu, found float32 [2, 4] on cpu".
DRIVETRAIN_INTERNAL std::string tensor_problem(const at::Tensor& found, const WantedTensor& wanted);

}  // namespace drivetrain
