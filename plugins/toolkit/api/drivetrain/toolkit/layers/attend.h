// An attention plugin as a differentiable function. Thread: main; backward on autograd's.
#pragma once

#include <drivetrain/attention.h>

namespace drivetrain {

// The two halves as one differentiable function: returns out. The graph keeps `attention`.
at::Tensor attend(const std::shared_ptr<const Attention>& attention, const at::Tensor& q, const at::Tensor& k,
                  const at::Tensor& v, const AttentionArgs& args);

}  // namespace drivetrain
