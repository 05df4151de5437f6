// GELU, its tanh approximation, SiLU and ReLU on CUDA, alone and as gates. A thread keeps its columns (and their
// bias) and walks down some rows, several of them at a time so that enough loads are in flight.
//
// Elements moved per element of y: forward 2 (gated 3), backward 3 (gated 5).
#include "kernels/activation/activation.h"

#include "kernels/activation/functions.cuh"
#include "kernels/common/device.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kForwardRows = 16;

// A thread's place: W columns from `column` of the rows from `row` on.
struct Place {
  int64_t row, column;
};

__device__ __forceinline__ Place place(unsigned chunks, int64_t rows_per_block, int width) {
  const int64_t chunk = blockIdx.x % chunks;
  return {blockIdx.x / chunks * rows_per_block,
          (chunk * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * width};
}

// Loads R rows of a matrix with `stride` columns; rows from `end` on are left out.
template <class T, int W, int R>
__device__ __forceinline__ void load_rows(const T* from, int64_t stride, int64_t row, int64_t end,
                                          Pack<T, W> (&to)[R]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (row + r < end) to[r] = load<W>(from + (row + r) * stride);
  }
}

template <class T, int W>
__device__ __forceinline__ void widen_add(const Pack<T, W>& pack, const float (&bias)[W], float (&to)[W]) {
  widen(pack, to);
#pragma unroll
  for (int i = 0; i < W; ++i) to[i] += bias[i];
}

template <class T, class Function, int W>
__global__ void __launch_bounds__(kThreads) forward_plain(ActivationForward op, unsigned chunks) {
  constexpr int R = 4;
  constexpr bool kFast = sizeof(T) == 2;
  const Place at = place(chunks, kForwardRows, W);
  if (at.column >= op.columns) return;
  const int64_t end = min(at.row + kForwardRows, op.rows);
  float bias[W];
  load_or_zero<W>(static_cast<const T*>(op.bias), at.column, bias);
  for (int64_t row = at.row; row < end; row += R) {
    Pack<T, W> in[R];
    load_rows(static_cast<const T*>(op.x) + at.column, op.columns, row, end, in);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row + r >= end) continue;
      float x[W];
      widen_add(in[r], bias, x);
#pragma unroll
      for (int i = 0; i < W; ++i) x[i] = Function::template value<kFast>(x[i]);
      store(static_cast<T*>(op.y) + (row + r) * op.columns + at.column, narrowed<T>(x));
    }
  }
}

template <class T, class Function, int W>
__global__ void __launch_bounds__(kThreads) forward_gated(ActivationForward op, unsigned chunks) {
  constexpr int R = 2;
  constexpr bool kFast = sizeof(T) == 2;
  const Place at = place(chunks, kForwardRows, W);
  if (at.column >= op.columns) return;
  const int64_t end = min(at.row + kForwardRows, op.rows), stride = 2 * op.columns;
  const T* x = static_cast<const T*>(op.x) + at.column;
  float gate_bias[W], up_bias[W];
  load_or_zero<W>(static_cast<const T*>(op.bias), at.column, gate_bias);
  load_or_zero<W>(static_cast<const T*>(op.bias), op.columns + at.column, up_bias);
  for (int64_t row = at.row; row < end; row += R) {
    Pack<T, W> gates[R], ups[R];
    load_rows(x, stride, row, end, gates);
    load_rows(x + op.columns, stride, row, end, ups);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row + r >= end) continue;
      float gate[W], up[W];
      widen_add(gates[r], gate_bias, gate);
      widen_add(ups[r], up_bias, up);
#pragma unroll
      for (int i = 0; i < W; ++i) up[i] *= Function::template value<kFast>(gate[i]);
      store(static_cast<T*>(op.y) + (row + r) * op.columns + at.column, narrowed<T>(up));
    }
  }
}

template <int W>
__device__ __forceinline__ void put(const float (&x)[W], float* to) {
#pragma unroll
  for (int i = 0; i < W; ++i) to[i] = x[i];
}

// One block of threads per kActivationRows rows and chunk of columns. dx may be x: a thread writes only what it has
// read.
template <class T, class Function, int W>
__global__ void __launch_bounds__(kThreads) backward_plain(ActivationBackward op, unsigned chunks) {
  constexpr int R = 4;
  constexpr bool kFast = sizeof(T) == 2;
  const Place at = place(chunks, kActivationRows, W);
  if (at.column >= op.columns) return;
  const int64_t end = min(at.row + kActivationRows, op.rows);
  float bias[W], sum[W] = {};
  load_or_zero<W>(static_cast<const T*>(op.bias), at.column, bias);
  for (int64_t row = at.row; row < end; row += R) {
    Pack<T, W> in[R], dys[R];
    load_rows(static_cast<const T*>(op.x) + at.column, op.columns, row, end, in);
    load_rows(static_cast<const T*>(op.dy) + at.column, op.columns, row, end, dys);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row + r >= end) continue;
      float x[W], dy[W];
      widen_add(in[r], bias, x);
      widen(dys[r], dy);
#pragma unroll
      for (int i = 0; i < W; ++i) sum[i] += x[i] = dy[i] * Function::template slope<kFast>(x[i]);
      store(static_cast<T*>(op.dx) + (row + r) * op.columns + at.column, narrowed<T>(x));
    }
  }
  if (op.partial) put(sum, op.partial + at.row / kActivationRows * op.columns + at.column);
}

template <class T, class Function, int W>
__global__ void __launch_bounds__(kThreads) backward_gated(ActivationBackward op, unsigned chunks) {
  constexpr int R = 2;
  constexpr bool kFast = sizeof(T) == 2;
  const Place at = place(chunks, kActivationRows, W);
  if (at.column >= op.columns) return;
  const int64_t end = min(at.row + kActivationRows, op.rows), stride = 2 * op.columns;
  const T* x = static_cast<const T*>(op.x) + at.column;
  float gate_bias[W], up_bias[W], gate_sum[W] = {}, up_sum[W] = {};
  load_or_zero<W>(static_cast<const T*>(op.bias), at.column, gate_bias);
  load_or_zero<W>(static_cast<const T*>(op.bias), op.columns + at.column, up_bias);
  for (int64_t row = at.row; row < end; row += R) {
    Pack<T, W> gates[R], ups[R], dys[R];
    load_rows(x, stride, row, end, gates);
    load_rows(x + op.columns, stride, row, end, ups);
    load_rows(static_cast<const T*>(op.dy) + at.column, op.columns, row, end, dys);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row + r >= end) continue;
      float gate[W], up[W], dy[W];
      widen_add(gates[r], gate_bias, gate);
      widen_add(ups[r], up_bias, up);
      widen(dys[r], dy);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float value = Function::template value<kFast>(gate[i]), slope = Function::template slope<kFast>(gate[i]);
        gate_sum[i] += gate[i] = dy[i] * up[i] * slope;
        up_sum[i] += up[i] = dy[i] * value;
      }
      T* dx = static_cast<T*>(op.dx) + (row + r) * stride + at.column;
      store(dx, narrowed<T>(gate));
      store(dx + op.columns, narrowed<T>(up));
    }
  }
  if (!op.partial) return;
  float* partial = op.partial + at.row / kActivationRows * stride + at.column;
  put(gate_sum, partial);
  put(up_sum, partial + op.columns);
}

template <class T>
int forward(const ActivationForward& op, void* stream) {
  return with_width<T>(op.columns, {op.x, op.bias, op.y}, [&](auto width) -> int {
    constexpr int W = decltype(width)::value;
    const Split shared = split(op.columns / W, kThreads);
    const int64_t blocks = shared.blocks * blocks_of(op.rows, kForwardRows);
    const auto run = [&](auto kernel) {
      return launch(kernel, blocks, shared.threads, stream, op, static_cast<unsigned>(shared.blocks));
    };
    switch (op.kind) {
      case Activation::gelu_tanh:
        return run(forward_plain<T, GeluTanh, W>);
      case Activation::gelu:
        return run(forward_plain<T, Gelu, W>);
      case Activation::silu:
        return run(forward_plain<T, Silu, W>);
      case Activation::relu:
        return run(forward_plain<T, Relu, W>);
      case Activation::swiglu:
        return run(forward_gated<T, Silu, W>);
      case Activation::geglu:
        return run(forward_gated<T, Gelu, W>);
      case Activation::geglu_tanh:
        return run(forward_gated<T, GeluTanh, W>);
      case Activation::reglu:
        return run(forward_gated<T, Relu, W>);
    }
    return cudaErrorInvalidValue;
  });
}

template <class T>
int backward(const ActivationBackward& op, void* stream) {
  return with_width<T>(op.columns, {op.x, op.bias, op.dy, op.dx}, [&](auto width) -> int {
    constexpr int W = decltype(width)::value;
    const Split shared = split(op.columns / W, kThreads);
    const int64_t blocks = shared.blocks * blocks_of(op.rows, kActivationRows);
    const auto run = [&](auto kernel) {
      return launch(kernel, blocks, shared.threads, stream, op, static_cast<unsigned>(shared.blocks));
    };
    switch (op.kind) {
      case Activation::gelu_tanh:
        return run(backward_plain<T, GeluTanh, W>);
      case Activation::gelu:
        return run(backward_plain<T, Gelu, W>);
      case Activation::silu:
        return run(backward_plain<T, Silu, W>);
      case Activation::relu:
        return run(backward_plain<T, Relu, W>);
      case Activation::swiglu:
        return run(backward_gated<T, Silu, W>);
      case Activation::geglu:
        return run(backward_gated<T, Gelu, W>);
      case Activation::geglu_tanh:
        return run(backward_gated<T, GeluTanh, W>);
      case Activation::reglu:
        return run(backward_gated<T, Relu, W>);
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace

int activation_forward_cuda(const ActivationForward& op, void* stream) {
  return with_type(op.dtype, [&](auto type) { return forward<typename decltype(type)::type>(op, stream); });
}

int activation_backward_cuda(const ActivationBackward& op, void* stream) {
  return with_type(op.dtype, [&](auto type) { return backward<typename decltype(type)::type>(op, stream); });
}

}  // namespace drivetrain::kernels
