// Cross entropy over parts of a vocabulary on CUDA, one block per row and pass (row.cuh).
#include "kernels/loss/part_cross_entropy.h"

#include "kernels/loss/row.cuh"

namespace drivetrain::kernels {
namespace {

template <class T, class Map>
__global__ void __launch_bounds__(kThreads, 2) begin_rows(PartCrossEntropy op, Map map) {
  const int64_t n = blockIdx.x, label = op.labels[n], own = label - op.first;
  double* part = op.part + n * 3;
  T* logits = static_cast<T*>(op.logits) + n * op.columns;
  Online all;
  if (label >= 0) all = fold(read(Row<T>(logits, op.valid), map));
  if (threadIdx.x > 0) return;
  part[0] = static_cast<double>(all.top);
  part[1] = static_cast<double>(all.sum);
  part[2] = label >= 0 && own >= 0 && own < op.valid ? static_cast<double>(map.value(widened(logits[own]))) : 0.0;
}

// All parts of a row together, in rank order.
__device__ void add_up(const PartCrossEntropy& op, int64_t row, double& top, double& sum, double& target) {
  top = static_cast<double>(-FLT_MAX), sum = 0, target = 0;
  for (int64_t r = 0; r < op.ranks; ++r) {
    const double other = op.parts[(r * op.rows + row) * 3];
    top = other > top ? other : top;
  }
  for (int64_t r = 0; r < op.ranks; ++r) {
    const double* part = op.parts + (r * op.rows + row) * 3;
    target += part[2];
    if (part[1] != 0) sum += part[1] * exp(part[0] - top);
  }
}

template <class T, class Map>
__global__ void __launch_bounds__(kThreads, 2) end_rows(PartCrossEntropy op, Map map) {
  const int64_t n = blockIdx.x, label = op.labels[n], own = label - op.first;
  T* logits = static_cast<T*>(op.logits) + n * op.columns;
  if (label < 0 || label >= op.vocabulary) {  // a label beyond the vocabulary must show, so its loss is no number
    if (op.gradient) clear(Row<T>(logits, op.columns));
    if (threadIdx.x == 0) op.loss[n] = label < 0 ? 0.0 : static_cast<double>(nanf(""));
    return;
  }
  __shared__ double top, sum, target;
  if (threadIdx.x == 0) {
    add_up(op, n, top, sum, target);
    op.loss[n] = log(sum) + (top - target);
  }
  if (!op.gradient) return;
  __syncthreads();
  write(Row<T>(logits, op.valid), static_cast<float>(top), static_cast<float>(op.scale / sum), map);
  for (int64_t i = op.valid + static_cast<int>(threadIdx.x); i < op.columns; i += kThreads) narrow(0.0F, logits[i]);
  __syncthreads();  // the label's own term replaces what was just written
  if (threadIdx.x > 0 || own < 0 || own >= op.valid) return;
  const double slope = static_cast<double>(map.slope(static_cast<float>(target)));
  const float share[1] = {static_cast<float>(op.scale * (exp(target - top) / sum - 1.0) * slope)};
  store(logits + own, narrowed<T>(share));
}

}  // namespace

int part_cross_entropy_begin_cuda(const PartCrossEntropy& op, void* stream) {
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_map(op,
                    [&](auto map) { return launch(begin_rows<T, decltype(map)>, op.rows, kThreads, stream, op, map); });
  });
}

int part_cross_entropy_end_cuda(const PartCrossEntropy& op, void* stream) {
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_map(op,
                    [&](auto map) { return launch(end_rows<T, decltype(map)>, op.rows, kThreads, stream, op, map); });
  });
}

}  // namespace drivetrain::kernels
