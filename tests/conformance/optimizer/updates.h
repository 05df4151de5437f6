// Parameters, gradients and arguments of an update to test optimizers with.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/optimizer.h>

#include <drivetrain/testkit/kit/keeper.h>

namespace drivetrain::test {

// Normal numbers, the same for the same seed.
at::Tensor uneven_numbers(int64_t n, uint64_t seed, at::ScalarType type = at::kFloat);

ParamPtr test_param(const std::string& name, std::vector<int64_t> shape);

// A whole trainable of `param` with values from `value`; in bfloat16 mode `working` is another tensor.
Trainable trainable(const Optimizer& optimizer, const ParamPtr& param, const at::Tensor& value, bool bfloat16 = false);
// Three tensors, one of them large enough to be shared by threads and of a size no vector divides.
Trainables test_trainables(const Optimizer& optimizer, bool bfloat16 = false);
void set_grads(const Trainables& all, int64_t step);

// With the optimizer's own hyperparameters.
UpdateArgs update_args(const Optimizer& optimizer, int64_t step, double grad_scale = 1, bool skip = false);

}  // namespace drivetrain::test
