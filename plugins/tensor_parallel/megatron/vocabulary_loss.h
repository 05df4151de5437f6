// Cross entropy of rows of logits whose columns are cut over ranks: each rank's part in, the whole vocabulary's loss
// out.
#pragma once

#include <ATen/core/Tensor.h>

#include <drivetrain/toolkit/ops/ops.h>

#include "layers.h"

namespace drivetrain::megatron {

// logits [N, columns of this rank], labels [N] of the whole vocabulary. Returns the float64 scalar sum over rows that
// count of log sum exp(logits) - logit[label], the same on all ranks. With `gradient` the logits become softmax -
// onehot, zero in rows that do not count and in padding. With `args` the matrix has z, and gets the gradient of z. One
// exchange: three numbers per row.
at::Tensor vocabulary_loss_(at::Tensor& logits, const at::Tensor& labels, const Exchange& exchange,
                            const Cut::Part& part, int64_t vocabulary, bool gradient, const ops::LogitArgs& args = {});

}  // namespace drivetrain::megatron
