#include "kernels/attention/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/lanes.h"
#include "kernels/common/vector_math.h"

namespace drivetrain::kernels {
namespace {

DRIVETRAIN_INLINE float exp_of(float x) { return exp(x); }
DRIVETRAIN_INLINE double exp_of(double x) { return std::exp(x); }

// 1 - 2 / (1 + e^2x) within 2e-7; below 0.3 a series, because there the difference loses digits.
DRIVETRAIN_INLINE float tanh_of(float x) {
  const float square = x * x;
  float p = 62.0F / 2835;
  p = multiply_add(p, square, -17.0F / 315);
  p = multiply_add(p, square, 2.0F / 15);
  p = multiply_add(p, square, -1.0F / 3);
  const float near = multiply_add(p * square, x, x), far = 1.0F - 2.0F / (1.0F + exp(2 * x));
  return square < 0.09F ? near : far;
}
DRIVETRAIN_INLINE double tanh_of(double x) { return std::tanh(x); }

template <class T>
DRIVETRAIN_INLINE T fold(T* lanes, int64_t width, T (*both)(T, T)) {
  for (; width > 1; width /= 2)
    for (int64_t j = 0; j < width / 2; ++j) lanes[j] = both(lanes[j], lanes[j + width / 2]);
  return lanes[0];
}
template <class T>
DRIVETRAIN_INLINE T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
DRIVETRAIN_INLINE T sum(T a, T b) {
  return a + b;
}

template <class T>
DRIVETRAIN_INLINE void cap(T* x, int64_t n, T softcap) {
  const T factor = 1 / softcap;
  for (int64_t i = 0; i < n; ++i) x[i] = softcap * tanh_of(x[i] * factor);
}

template <class T>
DRIVETRAIN_INLINE T maximum(const T* x, int64_t n) {
  T lanes[kLanes];
  for (T& lane : lanes) lane = -std::numeric_limits<T>::infinity();
  for_lanes(n, [&](int64_t i, int64_t lane) { lanes[lane] = larger(lanes[lane], x[i]); });
  return fold<T>(lanes, kLanes, larger<T>);
}

// x becomes e^(x - top); returns the sum.
template <class T>
DRIVETRAIN_INLINE T exponentials(T* x, int64_t n, T top) {
  T lanes[kLanes] = {};
  for_lanes(n, [&](int64_t i, int64_t lane) { lanes[lane] += x[i] = exp_of(x[i] - top); });
  return fold<T>(lanes, kLanes, sum<T>);
}

// One row's n visible scores; lse and sum of it.
template <class T>
struct RowSums {
  T top, sum;
};
template <class T>
DRIVETRAIN_INLINE RowSums<T> softmax_row(T* x, int64_t n, T softcap) {
  if (softcap > 0) cap(x, n, softcap);
  const T top = maximum(x, n);
  return {top, exponentials(x, n, top)};
}
DRIVETRAIN_VECTOR_CLONES RowSums<float> softmax_of(float* x, int64_t n, float softcap) {
  return softmax_row(x, n, softcap);
}
RowSums<double> softmax_of(double* x, int64_t n, double softcap) { return softmax_row(x, n, softcap); }

template <class T>
DRIVETRAIN_INLINE void grad_row(T* x, T* d, int64_t n, T softcap, T lse, T delta) {
  if (softcap == 0) {
    for (int64_t i = 0; i < n; ++i) {
      x[i] = exp_of(x[i] - lse);
      d[i] = x[i] * (d[i] - delta);
    }
    return;
  }
  const T factor = 1 / softcap;
  for (int64_t i = 0; i < n; ++i) {
    const T t = tanh_of(x[i] * factor);
    x[i] = exp_of(softcap * t - lse);
    d[i] = x[i] * (d[i] - delta) * (1 - t * t);
  }
}
DRIVETRAIN_VECTOR_CLONES void grad_of(float* x, float* d, int64_t n, float softcap, float lse, float delta) {
  grad_row(x, d, n, softcap, lse, delta);
}
void grad_of(double* x, double* d, int64_t n, double softcap, double lse, double delta) {
  grad_row(x, d, n, softcap, lse, delta);
}

// Calls use(row, its first column, columns that it sees).
template <class T, class Use>
void each_row(const ScoreRows<T>& op, const Use& use) {
  for (int64_t r = 0; r < op.rows; ++r) {
    const int64_t begin = std::clamp<int64_t>(op.begin + r, 0, op.columns);
    use(r, begin, std::clamp<int64_t>(op.end + r, begin, op.columns) - begin);
  }
}

template <class T>
void clear_hidden(T* row, int64_t columns, int64_t begin, int64_t seen) {
  std::fill(row, row + begin, T{0});
  std::fill(row + begin + seen, row + columns, T{0});
}

template <class T>
void softmax(const SoftmaxRows<T>& op) {
  each_row(op, [&](int64_t r, int64_t begin, int64_t seen) {
    T* const row = op.scores + r * op.columns;
    clear_hidden(row, op.columns, begin, seen);
    op.sums[r] = 0, op.lse[r] = -std::numeric_limits<T>::infinity();
    if (seen == 0) return;
    const RowSums<T> sums = softmax_of(row + begin, seen, static_cast<T>(op.softcap));
    op.sums[r] = sums.sum, op.lse[r] = sums.top + std::log(sums.sum);
  });
}

template <class T>
void softmax_grad(const SoftmaxGradRows<T>& op) {
  each_row(op, [&](int64_t r, int64_t begin, int64_t seen) {
    T *const row = op.scores + r * op.columns, *const gradients = op.gradients + r * op.columns;
    clear_hidden(row, op.columns, begin, seen);
    clear_hidden(gradients, op.columns, begin, seen);
    grad_of(row + begin, gradients + begin, seen, static_cast<T>(op.softcap), op.lse[r], op.delta[r]);
  });
}

}  // namespace

void softmax_rows_cpu(const SoftmaxRows<float>& op) { softmax(op); }
void softmax_rows_cpu(const SoftmaxRows<double>& op) { softmax(op); }
void softmax_grad_rows_cpu(const SoftmaxGradRows<float>& op) { softmax_grad(op); }
void softmax_grad_rows_cpu(const SoftmaxGradRows<double>& op) { softmax_grad(op); }

}  // namespace drivetrain::kernels
