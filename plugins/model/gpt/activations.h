// The MLP's activation functions, written so that only their input is kept for backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace drivetrain::gpt {

// One of ops.h by its name, as one function that autograd knows.
at::Tensor activate(const std::string& name, const at::Tensor& x);

}  // namespace drivetrain::gpt
