// The MLP's activation functions, written so that only their input is kept for backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace drivetrain::gpt {

// "gelu_tanh", "gelu" or "swiglu" of ops.h, as one function that autograd knows.
at::Tensor activate(const std::string& name, const at::Tensor& x);

}  // namespace drivetrain::gpt
