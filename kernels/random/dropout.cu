// One thread per Philox block of a sample: four neighbouring elements, or fewer at the ends of a run.
//
// Bytes moved per element: dropout reads and writes it once. Ten rounds are 40 multiplications for four elements.
#include "kernels/random/dropout.h"

#include "kernels/common/device.cuh"
#include "kernels/random/philox.h"

namespace drivetrain::kernels {
namespace {

constexpr int kThreads = 256;

int64_t philox_blocks(const RandomPlaces& p) { return p.count == 0 ? 0 : blocks_of(p.whole % 4 + p.count, 4); }

// use(flat index, number) for the elements of this thread.
template <class Use>
__device__ __forceinline__ void draw(const RandomPlaces& p, int64_t blocks, const Use& use) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t sample = thread / blocks, block = p.whole / 4 + thread % blocks;
  if (sample >= p.samples) return;
  const PhiloxWords words =
      philox_block(static_cast<uint64_t>(block), p.first_sample + static_cast<uint64_t>(sample), p.key0, p.key1);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t at = 4 * block + j - p.whole;
    if (at >= 0 && at < p.count) use(sample * p.row + p.local + at, uniform_of(words.word[j]));
  }
}

__global__ void __launch_bounds__(kThreads) fill(Uniform op, int64_t blocks) {
  draw(op.places, blocks, [&](int64_t i, float u) { op.out[i] = u; });
}

template <class T>
__global__ void __launch_bounds__(kThreads) drop(Dropout op, int64_t blocks) {
  const T* x = static_cast<const T*>(op.x);
  T* out = static_cast<T*>(op.out);
  draw(op.places, blocks, [&](int64_t i, float u) {
    const float kept[1] = {u >= op.limit ? widened(x[i]) * op.scale : 0.0F};
    out[i] = narrowed<T>(kept).unit[0];
  });
}

int64_t grid(const RandomPlaces& p, int64_t blocks) { return blocks_of(p.samples * blocks, kThreads); }

}  // namespace

int uniform_cuda(const Uniform& op, void* stream) {
  const int64_t blocks = philox_blocks(op.places);
  return launch(fill, grid(op.places, blocks), kThreads, stream, op, blocks);
}

int dropout_cuda(const Dropout& op, void* stream) {
  const int64_t blocks = philox_blocks(op.places);
  return with_type(op.dtype, [&](auto type) {
    return launch(drop<typename decltype(type)::type>, grid(op.places, blocks), kThreads, stream, op, blocks);
  });
}

}  // namespace drivetrain::kernels
