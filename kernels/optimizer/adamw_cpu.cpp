// One Adam step on the CPU, block by block: a block's working copy and its zeroed gradient are written while it is
// cached. Bytes moved per element: 28 for a float32 gradient, 4 more if it is zeroed, 2 more for a working copy.
#include "kernels/optimizer/adamw.h"

#include <cmath>

#include "kernels/common/narrow.h"

namespace drivetrain::kernels {
namespace {

// Four arrays of a block fill half of a first-level cache.
constexpr int64_t kBlock = 1024;

// Formed in double and rounded once.
struct Factors {
  float grad_scale, l2, shrink, beta1, new1, beta2, new2, step_size, root_scale, epsilon;
};

Factors factors(const Adam& op) {
  const double lr = op.scalars.hyper[0], decay = op.scalars.hyper[1], beta1 = op.scalars.hyper[2];
  const double step = static_cast<double>(*op.scalars.step + 1);
  const double correction1 = op.bias_correction ? 1 - std::pow(beta1, step) : 1;
  const double correction2 = op.bias_correction ? 1 - std::pow(op.beta2, step) : 1;
  const auto rounded = [](double x) { return static_cast<float>(x); };
  return {rounded(*op.scalars.grad_scale),
          rounded(op.l2 ? decay : 0),
          rounded(op.l2 ? 1 : 1 - lr * decay),
          rounded(beta1),
          rounded(1 - beta1),
          rounded(op.beta2),
          rounded(1 - op.beta2),
          rounded(lr / correction1),
          rounded(1 / std::sqrt(correction2)),
          rounded(op.epsilon)};
}

template <class Grad>
DRIVETRAIN_INLINE void update(float* __restrict p, const Grad* __restrict g, float* __restrict m, float* __restrict v,
                              int64_t n, const Factors f) {
  for (int64_t i = 0; i < n; ++i) {
    const float grad = widened(g[i]) * f.grad_scale + f.l2 * p[i];
    const float mean = f.beta1 * m[i] + f.new1 * grad;
    const float square = f.beta2 * v[i] + f.new2 * (grad * grad);
    m[i] = mean;
    v[i] = square;
    p[i] = p[i] * f.shrink - f.step_size * mean / (std::sqrt(square) * f.root_scale + f.epsilon);
  }
}

template <class Grad>
DRIVETRAIN_INLINE void zero(Grad* g, int64_t n) {
  for (int64_t i = 0; i < n; ++i) g[i] = Grad{};
}

template <class Grad>
DRIVETRAIN_INLINE void block(const Adam& op, const Factors f, int64_t begin, int64_t n) {
  Grad* g = static_cast<Grad*>(op.grad) + begin;
  float* p = op.value + begin;
  update(p, g, op.m + begin, op.v + begin, n, f);
  if (op.working) {
    uint16_t* working = static_cast<uint16_t*>(op.working) + begin;
    if (op.working_dtype == Dtype::bf16)
      narrow(p, working, n, to_bf16);
    else
      narrow(p, working, n, to_f16);
  }
  if (op.zero_grad) zero(g, n);
}

DRIVETRAIN_VECTOR_CLONES void range(const Adam& op, const Factors& f, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t n = end - i < kBlock ? end - i : kBlock;
    if (op.grad_dtype == Dtype::bf16)
      block<Bf16>(op, f, i, n);
    else if (op.grad_dtype == Dtype::f16)
      block<F16>(op, f, i, n);
    else
      block<float>(op, f, i, n);
  }
}

}  // namespace

void adam_cpu(const Adam& op, int64_t begin, int64_t end) {
  if (*op.scalars.skip) return;
  range(op, factors(op), begin, end);
}

}  // namespace drivetrain::kernels
