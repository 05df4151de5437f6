// The MLP's activation functions, written so that only their input is kept for backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace drivetrain::gpt {

// x [..., 2 F], gate first: silu(gate) * up, [..., F]. Source: Shazeer 2020, "GLU variants improve transformer", eq. 6.
at::Tensor swiglu(const at::Tensor& gate_up);

// "gelu_tanh", "gelu" (Hendrycks and Gimpel 2016, with and without the approximation) or "swiglu".
at::Tensor activate(const std::string& name, const at::Tensor& x);

}  // namespace drivetrain::gpt
