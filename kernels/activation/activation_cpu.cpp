// GELU, its tanh approximation, SiLU and ReLU on the CPU, alone and as gates. `x + bias` is formed again in the
// backward pass: it costs nothing beside reading x, and keeping it would cost a matrix.
#include "kernels/activation/activation.h"

#include "kernels/common/narrow.h"
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

struct Silu {
  static DRIVETRAIN_INLINE float open(float x) { return 1.0F / (1.0F + exp2_held(-kLog2E * x)); }

  static DRIVETRAIN_INLINE float value(float x) { return x * open(x); }

  static DRIVETRAIN_INLINE float slope(float x) {
    const float fall = exp2_held(-kLog2E * x);
    const float gate = 1.0F / (1.0F + fall);
    return gate * multiply_add(x, fall * gate, 1.0F);
  }
};

// NaN stays NaN.
struct Relu {
  static DRIVETRAIN_INLINE float value(float x) { return at_least(x, 0.0F); }

  static DRIVETRAIN_INLINE float slope(float x) { return x > 0.0F ? 1.0F : 0.0F; }
};

// x + bias in float32.
template <bool kBias, class T>
DRIVETRAIN_INLINE float biased(const T* x, const T* bias, int64_t i) {
  return kBias ? widened(x[i]) + widened(bias[i]) : widened(x[i]);
}

// Loops carry `ivdep` because outputs may be inputs, element for element; the compiler would take that for a
// dependence.
template <class Function, bool kBias, class T>
DRIVETRAIN_INLINE void values(const T* x, const T* bias, T* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = narrowed<T>(Function::value(biased<kBias>(x, bias, i)));
}

template <class Function, bool kBias, bool kPartial, class T>
DRIVETRAIN_INLINE void slopes(const T* x, const T* bias, const T* dy, T* dx, float* partial, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = widened(dy[i]) * Function::slope(biased<kBias>(x, bias, i));
    dx[i] = narrowed<T>(gradient);
    if (kPartial) partial[i] += gradient;
  }
}

template <class Function, bool kBias, class T>
DRIVETRAIN_INLINE void gated_values(const T* x, const T* bias, T* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float gate = biased<kBias>(x, bias, i), up = biased<kBias>(x, bias, n + i);
    y[i] = narrowed<T>(Function::value(gate) * up);
  }
}

template <class Function, bool kBias, bool kPartial, class T>
DRIVETRAIN_INLINE void gated_slopes(const T* x, const T* bias, const T* dy, T* dx, float* partial, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float gate = biased<kBias>(x, bias, i), up = biased<kBias>(x, bias, n + i);
    const float gradient = widened(dy[i]);
    const float dgate = gradient * up * Function::slope(gate);
    const float dup = gradient * Function::value(gate);
    dx[i] = narrowed<T>(dgate);
    dx[n + i] = narrowed<T>(dup);
    if (kPartial) partial[i] += dgate;
    if (kPartial) partial[n + i] += dup;
  }
}

template <bool kBias, class T>
DRIVETRAIN_INLINE void forward_of(Activation kind, const T* x, const T* bias, T* y, int64_t n) {
  switch (kind) {
    case Activation::gelu_tanh:
      return values<GeluTanh, kBias>(x, bias, y, n);
    case Activation::gelu:
      return values<Gelu, kBias>(x, bias, y, n);
    case Activation::silu:
      return values<Silu, kBias>(x, bias, y, n);
    case Activation::relu:
      return values<Relu, kBias>(x, bias, y, n);
    case Activation::swiglu:
      return gated_values<Silu, kBias>(x, bias, y, n);
    case Activation::geglu:
      return gated_values<Gelu, kBias>(x, bias, y, n);
    case Activation::geglu_tanh:
      return gated_values<GeluTanh, kBias>(x, bias, y, n);
    case Activation::reglu:
      return gated_values<Relu, kBias>(x, bias, y, n);
  }
}

template <bool kBias, bool kPartial, class T>
DRIVETRAIN_INLINE void backward_of(Activation kind, const T* x, const T* bias, const T* dy, T* dx, float* partial,
                                   int64_t n) {
  switch (kind) {
    case Activation::gelu_tanh:
      return slopes<GeluTanh, kBias, kPartial>(x, bias, dy, dx, partial, n);
    case Activation::gelu:
      return slopes<Gelu, kBias, kPartial>(x, bias, dy, dx, partial, n);
    case Activation::silu:
      return slopes<Silu, kBias, kPartial>(x, bias, dy, dx, partial, n);
    case Activation::relu:
      return slopes<Relu, kBias, kPartial>(x, bias, dy, dx, partial, n);
    case Activation::swiglu:
      return gated_slopes<Silu, kBias, kPartial>(x, bias, dy, dx, partial, n);
    case Activation::geglu:
      return gated_slopes<Gelu, kBias, kPartial>(x, bias, dy, dx, partial, n);
    case Activation::geglu_tanh:
      return gated_slopes<GeluTanh, kBias, kPartial>(x, bias, dy, dx, partial, n);
    case Activation::reglu:
      return gated_slopes<Relu, kBias, kPartial>(x, bias, dy, dx, partial, n);
  }
}

template <class T>
DRIVETRAIN_INLINE void forward_in(const ActivationForward& op, const T* x, T* y) {
  const T* const bias = static_cast<const T*>(op.bias);
  bias ? forward_of<true>(op.kind, x, bias, y, op.columns) : forward_of<false>(op.kind, x, bias, y, op.columns);
}

template <class T>
DRIVETRAIN_INLINE void backward_in(const ActivationBackward& op, const T* x, const T* dy, T* dx, float* partial) {
  const T* const bias = static_cast<const T*>(op.bias);
  const int64_t n = op.columns;
  if (partial) {
    bias ? backward_of<true, true>(op.kind, x, bias, dy, dx, partial, n)
         : backward_of<false, true>(op.kind, x, bias, dy, dx, partial, n);
  } else {
    bias ? backward_of<true, false>(op.kind, x, bias, dy, dx, partial, n)
         : backward_of<false, false>(op.kind, x, bias, dy, dx, partial, n);
  }
}

DRIVETRAIN_VECTOR_CLONES void forward_row(const ActivationForward& op, const void* x, void* y) {
  with_elements(
      op.dtype, [&]<class T>(T)
                    __attribute__((always_inline)) { forward_in(op, static_cast<const T*>(x), static_cast<T*>(y)); });
}

DRIVETRAIN_VECTOR_CLONES void backward_row(const ActivationBackward& op, const void* x, const void* dy, void* dx,
                                           float* partial) {
  with_elements(
      op.dtype, [&]<class T>(T) __attribute__((always_inline)) {
        backward_in(op, static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(dx), partial);
      });
}

// Rows come from products that other threads computed: they are far away, and asked for a row ahead.
void ask_for(const void* matrix, int64_t row, int64_t end, int64_t columns, Dtype dtype) {
  if (row >= end) return;
  const char* const at = static_cast<const char*>(row_of(matrix, row, columns, dtype));
  for (int64_t i = 0; i < columns * bytes_of_element(dtype); i += 64) __builtin_prefetch(at + i, 0, 2);
}

int64_t width_of(Activation kind, int64_t columns) { return is_gated(kind) ? 2 * columns : columns; }

}  // namespace

void activation_forward_cpu(const ActivationForward& op, int64_t row_begin, int64_t row_end) {
  const int64_t width = width_of(op.kind, op.columns);
  for (int64_t row = row_begin; row < row_end; ++row) {
    ask_for(op.x, row + 1, row_end, width, op.dtype);
    forward_row(op, row_of(op.x, row, width, op.dtype), row_of(op.y, row, op.columns, op.dtype));
  }
}

void activation_backward_cpu(const ActivationBackward& op, int64_t block_begin, int64_t block_end) {
  const int64_t width = width_of(op.kind, op.columns);
  for (int64_t block = block_begin; block < block_end; ++block) {
    float* partial = op.partial ? op.partial + block * width : nullptr;
    for (int64_t i = 0; partial && i < width; ++i) partial[i] = 0.0F;
    const int64_t first = block * kActivationRows;
    const int64_t last = first + kActivationRows < op.rows ? first + kActivationRows : op.rows;
    for (int64_t row = first; row < last; ++row) {
      ask_for(op.x, row + 1, last, width, op.dtype);
      ask_for(op.dy, row + 1, last, op.columns, op.dtype);
      backward_row(op, row_of(op.x, row, width, op.dtype), row_of(op.dy, row, op.columns, op.dtype),
                   row_of(op.dx, row, width, op.dtype), partial);
    }
  }
}

}  // namespace drivetrain::kernels
