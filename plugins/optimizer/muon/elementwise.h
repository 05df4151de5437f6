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

// momentum := mu momentum + (1 - mu) grad. Contiguous, of one size; `momentum` float32, `grad` of any floating type.
void add_gradient(const at::Tensor& momentum, const at::Tensor& grad, const StepScalars& step);

// to := momentum, or with nesterov mu momentum + (1 - mu) grad, rounded to the type of `to`. Matrices of one shape with
// dense rows.
void write_direction(const at::Tensor& to, const at::Tensor& momentum, const at::Tensor& grad, bool nesterov,
                     const StepScalars& step);

// value := value (1 - lr weight_decay) - lr scale direction. As above; `value` float32.
void take_step(const at::Tensor& value, const at::Tensor& direction, double scale, const StepScalars& step);

// a x + b y in the type of x; y has it, too, or float32. Contiguous. `rounds`, of float32: every sum to the nearest
// bfloat16.
at::Tensor weighted_sum(double a, const at::Tensor& x, double b, const at::Tensor& y, bool rounds = false);

// Below the diagonal of a square matrix on the CPU: what is above it. Contiguous.
void mirror_upper_half(const at::Tensor& square);

// x / max(norm, epsilon), with the root of the sum of all squares. Contiguous.
at::Tensor divided_by_norm(const at::Tensor& x, double epsilon);

}  // namespace drivetrain::muon
