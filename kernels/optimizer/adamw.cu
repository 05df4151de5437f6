// Adam on CUDA: each thread takes four elements of every stream at a time. The step's scalars are read from the device
// and made into factors once per block, by a few blocks that walk over all elements.
//
// Bytes moved per element with float32 gradients: 28, 4 more if they are zeroed, 2 more for a 16-bit working copy.
#include "kernels/optimizer/adamw.h"

#include "kernels/common/device.cuh"
#include "kernels/common/segments.cuh"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 4;  // as many as their registers leave room for: one even wave

struct Factors {
  float grad_scale, l2, shrink, beta1, new1, beta2, new2, step_size, root_scale, epsilon;
};

// In double, by squaring: a few dozen products where pow() takes hundreds of instructions.
__device__ double power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

__device__ Factors factors(const Adam& op, int64_t group = 0) {
  const double* hyper = op.scalars.hyper + 3 * group;
  const double lr = hyper[0], decay = hyper[1], beta1 = hyper[2];
  const int64_t step = *op.scalars.step + 1;
  const double correction1 = op.bias_correction ? 1.0 - power(beta1, step) : 1.0;
  const double correction2 = op.bias_correction ? 1.0 - power(op.beta2, step) : 1.0;
  Factors f;
  f.grad_scale = static_cast<float>(*op.scalars.grad_scale);
  f.l2 = op.l2 ? static_cast<float>(decay) : 0.0F;
  f.shrink = op.l2 ? 1.0F : static_cast<float>(1.0 - lr * decay);
  f.beta1 = static_cast<float>(beta1);
  f.new1 = static_cast<float>(1.0 - beta1);
  f.beta2 = static_cast<float>(op.beta2);
  f.new2 = static_cast<float>(1.0 - op.beta2);
  f.step_size = static_cast<float>(lr / correction1);
  f.root_scale = static_cast<float>(1.0 / sqrt(correction2));
  f.epsilon = static_cast<float>(op.epsilon);
  return f;
}

// Elements [at, at + W) of `op`, an Adam or an AdamSegment.
template <class Grad, class Working, int W, class Arrays>
__device__ __forceinline__ void update(const Arrays& op, bool zero_grad, const Factors& f, int64_t at) {
  Grad* grad_at = static_cast<Grad*>(op.grad) + at;
  const Pack<Grad, W> grad = load<W>(grad_at);
  Pack<float, W> p = load<W>(op.value + at), m = load<W>(op.m + at), v = load<W>(op.v + at);
  float grads[W];
  widen(grad, grads);
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const float g = grads[i] * f.grad_scale + f.l2 * p.unit[i];
    m.unit[i] = f.beta1 * m.unit[i] + f.new1 * g;
    v.unit[i] = f.beta2 * v.unit[i] + f.new2 * (g * g);
    p.unit[i] = p.unit[i] * f.shrink - f.step_size * m.unit[i] / (sqrtf(v.unit[i]) * f.root_scale + f.epsilon);
  }
  store(op.value + at, p);
  store(op.m + at, m);
  store(op.v + at, v);
  if (op.working) store(static_cast<Working*>(op.working) + at, narrowed<Working>(p.unit));
  if (zero_grad) {
    const float zeros[W] = {};
    store(grad_at, narrowed<Grad>(zeros));
  }
}

template <class Grad, class Working, int W>
__global__ void __launch_bounds__(kThreads) adam_walk(Adam op) {
  __shared__ Factors shared;
  if (*op.scalars.skip) return;  // every thread of every block
  if (threadIdx.x == 0) shared = factors(op);
  __syncthreads();
  const Factors f = shared;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads, packs = op.n / W;
  for (int64_t i = thread; i < packs; i += step) update<Grad, Working, W>(op, op.zero_grad, f, i * W);
  if (thread < op.n - packs * W) update<Grad, Working, 1>(op, op.zero_grad, f, packs * W + thread);
}

__device__ __forceinline__ bool lies_on(const void* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// Tile after tile; the factors of all groups once per block.
template <class Grad, class Working>
__global__ void __launch_bounds__(kThreads) adam_tiles(AdamMany op) {
  constexpr int W = 4;
  __shared__ Factors shared[kMostAdamGroups];
  if (*op.shared.scalars.skip) return;  // every thread of every block
  for (int64_t group = threadIdx.x; group < op.groups; group += kThreads) shared[group] = factors(op.shared, group);
  __syncthreads();
  for (int64_t tile = blockIdx.x; tile < op.tiles; tile += gridDim.x) {
    const AdamSegment s = segment_of(op.segments, op.count, tile);
    const Factors f = shared[s.group];
    const int64_t begin = (tile - s.first) * kAdamTile, left = s.n - begin, n = left < kAdamTile ? left : kAdamTile;
    const bool wide = lies_on(s.value, 16) && lies_on(s.m, 16) && lies_on(s.v, 16) &&
                      lies_on(s.grad, W * sizeof(Grad)) && lies_on(s.working, W * sizeof(Working));
    const int64_t packs = wide ? n / W : 0;
    for (int64_t i = threadIdx.x; i < packs; i += kThreads)
      update<Grad, Working, W>(s, op.shared.zero_grad, f, begin + i * W);
    for (int64_t i = packs * W + threadIdx.x; i < n; i += kThreads)
      update<Grad, Working, 1>(s, op.shared.zero_grad, f, begin + i);
  }
}

template <class Grad, class Working>
int run(const Adam& op, void* stream) {
  constexpr int W = 4;
  const bool wide = aligned({op.value, op.m, op.v}) && aligned({op.grad}, W * sizeof(Grad)) &&
                    aligned({op.working}, W * sizeof(Working));
  const int64_t blocks = op.n == 0 ? 0 : persistent_blocks(blocks_of(op.n, kThreads * (wide ? W : 1)), kBlocksPerSm);
  return launch(wide ? adam_walk<Grad, Working, W> : adam_walk<Grad, Working, 1>, blocks, kThreads, stream, op);
}

}  // namespace

int adam_cuda(const Adam& op, void* stream) {
  return with_type(op.grad_dtype, [&](auto grad) {
    return with_type(op.working_dtype, [&](auto working) {
      return run<typename decltype(grad)::type, typename decltype(working)::type>(op, stream);
    });
  });
}

int adam_many_cuda(const AdamMany& op, void* stream) {
  if (op.groups > kMostAdamGroups) return cudaErrorInvalidValue;
  return with_type(op.shared.grad_dtype, [&](auto grad) {
    return with_type(op.shared.working_dtype, [&](auto working) {
      return launch(adam_tiles<typename decltype(grad)::type, typename decltype(working)::type>,
                    op.tiles == 0 ? 0 : persistent_blocks(op.tiles, kBlocksPerSm), kThreads, stream, op);
    });
  });
}

}  // namespace drivetrain::kernels
