// The output layer and its cross-entropy as one differentiable function:
// one logits buffer, turned into its own gradient.
#pragma once

#include <drivetrain/param.h>

namespace drivetrain {

// x [B, S, D], weight [V, D], labels int64 [B, S] (-100: does not count).
// Returns the float64 scalar sum over valid tokens of log sum exp(logits) - logit[label].
// The feed has checked the labels.
at::Tensor lm_loss(const at::Tensor& x, const ParamPtr& weight, const at::Tensor& labels);

}  // namespace drivetrain
