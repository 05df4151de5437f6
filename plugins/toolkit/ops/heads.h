// What the sources of the split of q, k and v share.
#pragma once

#include <drivetrain/toolkit/ops/ops.h>

#include "kernels/rotary/rotary.h"

namespace drivetrain::ops {

// Sizes and memory for the kernels. heads.k and heads.v may be undefined: there are no groups.
kernels::Rotary rotary_arguments(const at::Tensor& qkv, const Heads& heads, const RotaryTable& table);
Heads empty_heads(const at::Tensor& qkv, int64_t heads, int64_t groups);
Heads split_normed_heads(const at::Tensor& qkv, const at::Tensor& bias, const RotaryTable& table, int64_t heads,
                         int64_t groups, const QkNorm& norm);

}  // namespace drivetrain::ops
