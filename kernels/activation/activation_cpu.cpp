// GELU, its tanh approximation, SiLU and ReLU on the CPU, alone and as gates. `x + bias` is formed again in the
// backward pass: it costs nothing beside reading x, and keeping it would cost a matrix.
#include "kernels/activation/activation.h"

#include <algorithm>

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

// Loops are compiled once per function and vector width, on float32. A row is worked on in pieces that stay in the
// first cache: elements of 16 bits and what a bias is added to are widened there first, and results narrowed behind.
// Loops carry `ivdep` because outputs may be inputs, element for element; the compiler would take that for a
// dependence.
constexpr int64_t kPiece = 512;

template <class Function>
DRIVETRAIN_INLINE void values_of(const float* x, const float* up, float* y, int64_t n) {
  if (up) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = Function::value(x[i]) * up[i];
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Function::value(x[i]);
}

template <class Function>
DRIVETRAIN_INLINE void slopes_of(const float* x, const float* up, const float* dy, float* dx, float* dup, int64_t n) {
  if (up) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float gate = x[i], gradient = dy[i];
      dx[i] = gradient * up[i] * Function::slope(gate);
      dup[i] = gradient * Function::value(gate);
    }
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * Function::slope(x[i]);
}

// Calls f(Function()) with the function that `kind` names.
template <class F>
DRIVETRAIN_INLINE void with_function(Activation kind, const F& f) {
  switch (kind) {
    case Activation::gelu_tanh:
    case Activation::geglu_tanh:
      return f(GeluTanh());
    case Activation::gelu:
    case Activation::geglu:
      return f(Gelu());
    case Activation::silu:
    case Activation::swiglu:
      return f(Silu());
    case Activation::relu:
    case Activation::reglu:
      return f(Relu());
  }
}

// y := function(x), times `up` unless that is null.
DRIVETRAIN_VECTOR_CLONES void values(Activation kind, const float* x, const float* up, float* y, int64_t n) {
  with_function(
      kind, [&]<class Function>(Function) __attribute__((always_inline)) { values_of<Function>(x, up, y, n); });
}

// The gradients of x, and of `up` unless that is null.
DRIVETRAIN_VECTOR_CLONES void slopes(Activation kind, const float* x, const float* up, const float* dy, float* dx,
                                     float* dup, int64_t n) {
  with_function(
      kind, [&]<class Function>(Function)
                __attribute__((always_inline)) { slopes_of<Function>(x, up, dy, dx, dup, n); });
}

DRIVETRAIN_VECTOR_CLONES void widen_piece(Dtype dtype, const void* x, const void* bias, float* to, int64_t n) {
  widen(dtype, x, bias, to, n);
}

DRIVETRAIN_VECTOR_CLONES void narrow_piece(Dtype dtype, const float* x, void* to, int64_t n) {
  narrow(dtype, x, to, n);
}

DRIVETRAIN_VECTOR_CLONES void add_piece(const float* x, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += x[i];
}

// The numbers of x + bias from element `at` on: x itself where these are what lies there, or else `room`.
const float* numbers_of(Dtype dtype, const void* x, const void* bias, int64_t at, int64_t n, float* room) {
  if (dtype == Dtype::f32 && !bias) return static_cast<const float*>(x) + at;
  widen_piece(dtype, row_of(x, at, 1, dtype), row_of(bias, at, 1, dtype), room, n);
  return room;
}

// Where results for `to` from element `at` on are computed: there, or in `room` until they are narrowed.
float* place_of(Dtype dtype, void* to, int64_t at, float* room) {
  return dtype == Dtype::f32 ? static_cast<float*>(to) + at : room;
}

void store(Dtype dtype, const float* numbers, void* to, int64_t at, int64_t n) {
  if (dtype != Dtype::f32) narrow_piece(dtype, numbers, row_of(to, at, 1, dtype), n);
}

void forward_row(const ActivationForward& op, const void* x, void* y) {
  float x_room[kPiece], up_room[kPiece], y_room[kPiece];
  for (int64_t at = 0; at < op.columns; at += kPiece) {
    const int64_t n = std::min(kPiece, op.columns - at);
    const float* const gate = numbers_of(op.dtype, x, op.bias, at, n, x_room);
    const float* const up = is_gated(op.kind) ? numbers_of(op.dtype, x, op.bias, op.columns + at, n, up_room) : nullptr;
    float* const to = place_of(op.dtype, y, at, y_room);
    values(op.kind, gate, up, to, n);
    store(op.dtype, to, y, at, n);
  }
}

void backward_row(const ActivationBackward& op, const void* x, const void* dy, void* dx, float* partial) {
  float x_room[kPiece], up_room[kPiece], dy_room[kPiece], dx_room[kPiece], dup_room[kPiece];
  const bool gated = is_gated(op.kind);
  for (int64_t at = 0; at < op.columns; at += kPiece) {
    const int64_t n = std::min(kPiece, op.columns - at), at_up = op.columns + at;
    const float* const gate = numbers_of(op.dtype, x, op.bias, at, n, x_room);
    const float* const up = gated ? numbers_of(op.dtype, x, op.bias, at_up, n, up_room) : nullptr;
    const float* const gradient = numbers_of(op.dtype, dy, nullptr, at, n, dy_room);
    float *const to = place_of(op.dtype, dx, at, dx_room), *const to_up = place_of(op.dtype, dx, at_up, dup_room);
    slopes(op.kind, gate, up, gradient, to, to_up, n);
    store(op.dtype, to, dx, at, n);
    if (gated) store(op.dtype, to_up, dx, at_up, n);
    if (partial) add_piece(to, partial + at, n);
    if (partial && gated) add_piece(to_up, partial + at_up, n);
  }
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
