// Cross entropy on CUDA, one block per row (row.cuh).
//
// Device memory sees each logit read once and written once (the second read comes from cache while all rows in work fit
// there: 50304 columns of bf16 do).
#include "kernels/loss/cross_entropy.h"

#include "kernels/loss/row.cuh"

namespace drivetrain::kernels {
namespace {

template <class T, class Map>
__global__ void __launch_bounds__(kThreads, 2) cross_entropy_rows(CrossEntropy op, Map map) {
  const int64_t n = blockIdx.x, label = op.labels[n];
  T* logits = static_cast<T*>(op.logits) + n * op.stride;
  const Row<T> row(logits, op.columns);
  if (label < 0 || label >= op.columns) {  // a label beyond the vocabulary must show, so its loss is no number
    if (op.gradient) clear(row);
    if (threadIdx.x == 0) op.loss[n] = label < 0 ? 0.0 : static_cast<double>(nanf(""));
    return;
  }
  const float target = map.value(widened(logits[label]));  // before anything is overwritten: a barrier follows
  const Online all = fold(read(row, map));
  if (op.gradient) {
    write(row, all.top, static_cast<float>(op.scale / static_cast<double>(all.sum)), map);
    __syncthreads();  // the label's own term replaces what was just written
  }
  if (threadIdx.x > 0) return;
  op.loss[n] = static_cast<double>(all.top) - static_cast<double>(target) + log(static_cast<double>(all.sum));
  if (!op.gradient) return;
  const double share = static_cast<double>(exp2f((target - all.top) * kLog2e)) / static_cast<double>(all.sum);
  const float own[1] = {static_cast<float>(op.scale * (share - 1.0) * static_cast<double>(map.slope(target)))};
  store(logits + label, narrowed<T>(own));
}

}  // namespace

int cross_entropy_cuda(const CrossEntropy& given, void* stream) {
  CrossEntropy op = given;
  if (op.stride == 0) op.stride = op.columns;
  return with_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    return with_map(
        op, [&](auto map) { return launch(cross_entropy_rows<T, decltype(map)>, op.rows, kThreads, stream, op, map); });
  });
}

}  // namespace drivetrain::kernels
