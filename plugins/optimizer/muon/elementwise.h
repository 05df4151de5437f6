// The parts of an update that go element by element. Every operation is rounded once, and nothing is contracted to a
// fused multiply-add, so results have the same bits however a matrix is cut and loops are shared out.
#pragma once

#include <ATen/core/Tensor.h>

#include <drivetrain/optimizer.h>

namespace drivetrain::muon {

// What the step says about a group of parameters, read where it stands: on the CPU by the host, elsewhere on the
// device.
struct StepScalars {
  at::Tensor lr, weight_decay, momentum, grad_scale, skip;  // one element each
  StepScalars(const UpdateArgs& args, int group);
};

// momentum := mu momentum + (1 - mu) grad. Matrices of one shape with dense rows; `momentum` float32, `grad` of any
// floating type.
void take_gradient(const at::Tensor& momentum, const at::Tensor& grad, const StepScalars& step);
// The same, and then to := momentum, or with nesterov mu momentum + (1 - mu) grad, rounded to the type of `to`. In a
// step that is skipped `to` may have any finite values on the CPU.
void take_gradient_into(const at::Tensor& to, const at::Tensor& momentum, const at::Tensor& grad, bool nesterov,
                        const StepScalars& step);

// value := value (1 - lr weight_decay) - lr scale direction. As above; `value` float32.
void take_step(const at::Tensor& value, const at::Tensor& direction, double scale, const StepScalars& step);

// a x + b y in the type of x; y has it, too, or float32. Contiguous. `rounds`, of float32: every sum to the nearest
// bfloat16.
at::Tensor weighted_sum(double a, const at::Tensor& x, double b, const at::Tensor& y, bool rounds = false);

// Below the diagonal of a square matrix on the CPU: what is above it. Contiguous.
void mirror_upper_half(const at::Tensor& square);

// 1 / max(norm, epsilon), or 0 where that is 0, of a matrix on the CPU; the norm is the root of the sum of all squares.
float inverse_norm(const at::Tensor& x, double epsilon);

// x / max(norm, epsilon), with the root of the sum of all squares. Contiguous.
at::Tensor divided_by_norm(const at::Tensor& x, double epsilon);

}  // namespace drivetrain::muon
