// GELU, its tanh approximation and SwiGLU on the CPU. `x + bias` is formed again in the backward pass: it costs nothing
// beside reading x, and keeping it would cost a matrix.
#include "kernels/activation/activation.h"

#include "kernels/common/vector_math.h"

namespace drivetrain::kernels {
namespace {

// 0.5 (1 + tanh u) = sigmoid(2 u) = 1 / (1 + 2^t), t = -2 log2(e) u, u = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  static constexpr float kLine = 1.5957691216F, kCube = kLine * 0.044715F;

  static DRIVETRAIN_INLINE float decay(float x, float square) {
    return exp2_held(x * multiply_add(-kLog2E * kCube, square, -kLog2E * kLine));
  }

  static DRIVETRAIN_INLINE float value(float x) { return x / (1.0F + decay(x, x * x)); }

  // Beyond 20 the slope is 1 or 0, and the cube of x might be more than what is left of the other factor.
  static DRIVETRAIN_INLINE float slope(float any_x) {
    const float x = at_most(at_least(any_x, -20.0F), 20.0F);
    const float square = x * x;
    const float fall = decay(x, square);
    const float gate = 1.0F / (1.0F + fall);
    return gate * multiply_add(x * (fall * gate), multiply_add(3.0F * kCube, square, kLine), 1.0F);
  }
};

struct Gelu {
  static DRIVETRAIN_INLINE float value(float x) { return x * normal_cumulative(x); }

  static DRIVETRAIN_INLINE float slope(float x) { return multiply_add(x, normal_density(x), normal_cumulative(x)); }
};

// Loops carry `ivdep` because outputs may be inputs, element for element; the compiler would take that for a
// dependence.
template <class Function, bool kBias>
DRIVETRAIN_INLINE void values(const float* x, const float* bias, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Function::value(kBias ? x[i] + bias[i] : x[i]);
}

template <class Function, bool kBias, bool kPartial>
DRIVETRAIN_INLINE void slopes(const float* x, const float* bias, const float* dy, float* dx, float* partial,
                              int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = dy[i] * Function::slope(kBias ? x[i] + bias[i] : x[i]);
    dx[i] = gradient;
    if (kPartial) partial[i] += gradient;
  }
}

template <bool kBias>
DRIVETRAIN_INLINE void gated_values(const float* x, const float* bias, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float gate = kBias ? x[i] + bias[i] : x[i];
    const float up = kBias ? x[n + i] + bias[n + i] : x[n + i];
    y[i] = gate * up / (1.0F + exp2_held(-kLog2E * gate));
  }
}

template <bool kBias, bool kPartial>
DRIVETRAIN_INLINE void gated_slopes(const float* x, const float* bias, const float* dy, float* dx, float* partial,
                                    int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float gate = kBias ? x[i] + bias[i] : x[i];
    const float up = kBias ? x[n + i] + bias[n + i] : x[n + i];
    const float fall = exp2_held(-kLog2E * gate);
    const float open = 1.0F / (1.0F + fall);
    const float dgate = dy[i] * up * (open * multiply_add(gate, fall * open, 1.0F));
    const float dup = dy[i] * (gate * open);
    dx[i] = dgate;
    dx[n + i] = dup;
    if (kPartial) partial[i] += dgate;
    if (kPartial) partial[n + i] += dup;
  }
}

template <bool kBias>
DRIVETRAIN_INLINE void forward_of(Activation kind, const float* x, const float* bias, float* y, int64_t n) {
  if (kind == Activation::gelu_tanh) return values<GeluTanh, kBias>(x, bias, y, n);
  if (kind == Activation::gelu) return values<Gelu, kBias>(x, bias, y, n);
  gated_values<kBias>(x, bias, y, n);
}

template <bool kBias, bool kPartial>
DRIVETRAIN_INLINE void backward_of(Activation kind, const float* x, const float* bias, const float* dy, float* dx,
                                   float* partial, int64_t n) {
  if (kind == Activation::gelu_tanh) return slopes<GeluTanh, kBias, kPartial>(x, bias, dy, dx, partial, n);
  if (kind == Activation::gelu) return slopes<Gelu, kBias, kPartial>(x, bias, dy, dx, partial, n);
  gated_slopes<kBias, kPartial>(x, bias, dy, dx, partial, n);
}

DRIVETRAIN_VECTOR_CLONES void forward_row(Activation kind, const float* x, const float* bias, float* y, int64_t n) {
  bias ? forward_of<true>(kind, x, bias, y, n) : forward_of<false>(kind, x, bias, y, n);
}

DRIVETRAIN_VECTOR_CLONES void backward_row(Activation kind, const float* x, const float* bias, const float* dy,
                                           float* dx, float* partial, int64_t n) {
  if (partial) {
    bias ? backward_of<true, true>(kind, x, bias, dy, dx, partial, n)
         : backward_of<false, true>(kind, x, bias, dy, dx, partial, n);
  } else {
    bias ? backward_of<true, false>(kind, x, bias, dy, dx, partial, n)
         : backward_of<false, false>(kind, x, bias, dy, dx, partial, n);
  }
}

int64_t width_of(Activation kind, int64_t columns) { return kind == Activation::swiglu ? 2 * columns : columns; }

}  // namespace

void activation_forward_cpu(const ActivationForward& op, int64_t row_begin, int64_t row_end) {
  const float* x = static_cast<const float*>(op.x);
  const float* bias = static_cast<const float*>(op.bias);
  float* y = static_cast<float*>(op.y);
  const int64_t width = width_of(op.kind, op.columns);
  for (int64_t row = row_begin; row < row_end; ++row) {
    forward_row(op.kind, x + row * width, bias, y + row * op.columns, op.columns);
  }
}

void activation_backward_cpu(const ActivationBackward& op, int64_t block_begin, int64_t block_end) {
  const float* x = static_cast<const float*>(op.x);
  const float* bias = static_cast<const float*>(op.bias);
  const float* dy = static_cast<const float*>(op.dy);
  float* dx = static_cast<float*>(op.dx);
  const int64_t width = width_of(op.kind, op.columns);
  for (int64_t block = block_begin; block < block_end; ++block) {
    float* partial = op.partial ? op.partial + block * width : nullptr;
    for (int64_t i = 0; partial && i < width; ++i) partial[i] = 0.0F;
    const int64_t first = block * kActivationRows;
    const int64_t last = first + kActivationRows < op.rows ? first + kActivationRows : op.rows;
    for (int64_t row = first; row < last; ++row) {
      backward_row(op.kind, x + row * width, bias, dy + row * op.columns, dx + row * width, partial, op.columns);
    }
  }
}

}  // namespace drivetrain::kernels
