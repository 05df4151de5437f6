// An attention plugin as a differentiable function. Thread: main; backward on autograd's.
#pragma once

#include <drivetrain/attention.h>

namespace drivetrain {

// Attention::forward and backward as one differentiable function; shapes as in attention.h. Returns out. The autograd
// graph holds `attention`. Throws what the plugin throws.
at::Tensor attend(const std::shared_ptr<const Attention>& attention, const at::Tensor& q, const at::Tensor& k,
                  const at::Tensor& v, const AttentionArgs& args);

}  // namespace drivetrain
