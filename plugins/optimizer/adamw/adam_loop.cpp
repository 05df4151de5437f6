// The loops of adam_loop.h, compiled for each vector width (see CMakeLists.txt for the flags).
#include "adam_loop.h"

#include <ATen/Parallel.h>

#include <cmath>

#include <drivetrain/vector_clones.h>

namespace {

// Large enough that starting a thread does not show, small enough to share a 768-wide matrix.
constexpr int64_t kGrain = 32768;

template <class T>
inline __attribute__((always_inline)) void adam_range(T* __restrict p, const T* __restrict g, T* __restrict m,
                                                      T* __restrict v, int64_t n, const AdamStep& step) {
  const T grad_scale = step.grad_scale, l2 = step.l2, shrink = step.shrink, beta1 = step.beta1, beta2 = step.beta2;
  const T new1 = 1 - step.beta1, new2 = 1 - step.beta2;
  const T step_size = step.step_size, root_scale = step.root_scale, eps = step.eps;
  for (int64_t i = 0; i < n; ++i) {
    const T grad = g[i] * grad_scale + l2 * p[i];
    const T mean = beta1 * m[i] + new1 * grad;
    const T square = beta2 * v[i] + new2 * (grad * grad);
    m[i] = mean;
    v[i] = square;
    p[i] = p[i] * shrink - step_size * mean / (std::sqrt(square) * root_scale + eps);
  }
}

DRIVETRAIN_VECTOR_CLONES void range_float(float* p, const float* g, float* m, float* v, int64_t n, const AdamStep& step) {
  adam_range<float>(p, g, m, v, n, step);
}

void range_double(double* p, const double* g, double* m, double* v, int64_t n, const AdamStep& step) {
  adam_range<double>(p, g, m, v, n, step);
}

}  // namespace

void adam_loop(float* p, const float* g, float* m, float* v, int64_t n, const AdamStep& step) {
  at::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    range_float(p + begin, g + begin, m + begin, v + begin, end - begin, step);
  });
}

void adam_loop(double* p, const double* g, double* m, double* v, int64_t n, const AdamStep& step) {
  at::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    range_double(p + begin, g + begin, m + begin, v + begin, end - begin, step);
  });
}
