#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

#include <drivetrain/toolkit/ops/ops.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/loss/cross_entropy.h"
#include "kernels/optimizer/square_sum.h"

#include <algorithm>

namespace drivetrain::ops {
namespace {

at::Tensor cross_entropy_by_operators(at::Tensor& logits, const at::Tensor& labels, bool gradient, double scale,
                                      const LogitArgs& args) {
  const at::ScalarType wide = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor x = logits_of(logits.to(wide), args), counts = labels.ge(0),
                   column = labels.clamp_min(0).unsqueeze(1);
  const at::Tensor of_label = at::gather(x, 1, column).squeeze(1);
  const at::Tensor each = at::logsumexp(x, 1).to(at::kDouble) - of_label.to(at::kDouble);
  const at::Tensor loss = at::where(counts, each, at::full({}, 0.0, each.options())).sum();
  if (gradient) {
    at::Tensor g = at::_softmax(x, 1, false);
    g.scatter_add_(1, column, at::full({column.size(0), 1}, -1.0, g.options()));
    if (args.softcap > 0) g.mul_(1 - at::square(x / args.softcap));
    logits.copy_(g.mul_(counts.unsqueeze(1).to(wide) * (scale * args.scale)));
  }
  return loss;
}

}  // namespace

int64_t loss_rows_at_once(int64_t rows, int64_t row_bytes, bool on_cpu) {
  const int64_t fit = (on_cpu ? int64_t{64} << 20 : int64_t{512} << 20) / row_bytes;
  const int64_t most = std::min(rows, std::clamp<int64_t>(fit / 64 * 64, 64, std::max<int64_t>(rows, 64)));
  return on_cpu || rows == 0 ? most : even_rows(rows, most);
}

int64_t loss_rows_at_once(const at::Tensor& x, const at::Tensor& weight) {
  return loss_rows_at_once(x.size(0), weight.size(0) * static_cast<int64_t>(weight.element_size()), x.is_cpu());
}

int64_t even_rows(int64_t N, int64_t most) {
  const int64_t chunks = (N + most - 1) / most, even = (N + chunks - 1) / chunks;
  return std::min(most, (even + 63) / 64 * 64);
}

int64_t aligned_columns(int64_t columns) { return (columns + 63) / 64 * 64; }

at::Tensor logits_of(const at::Tensor& z, const LogitArgs& args) {
  const at::Tensor logits = args.scale == 1 ? z : at::mul(z, args.scale);
  return args.softcap > 0 ? at::tanh(logits / args.softcap) * args.softcap : logits;
}

at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& given_labels, bool gradient, double scale,
                          const LogitArgs& args) {
  const bool rows_apart = logits.stride(1) == 1 && logits.stride(0) >= logits.size(1);  // or dense
  if (!has_kernel(logits) || !(logits.is_contiguous() || rows_apart))
    return cross_entropy_by_operators(logits, given_labels, gradient, scale, args);
  const at::Tensor labels = given_labels.contiguous();
  const at::Tensor loss = at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
  kernels::CrossEntropy op;
  op.logits = out(logits), op.labels = in<int64_t>(labels), op.loss = out<double>(loss);
  op.rows = logits.size(0), op.columns = logits.size(1), op.stride = rows_apart ? logits.stride(0) : 0;
  op.gradient = gradient, op.scale = scale, op.dtype = kernel_dtype(logits);
  op.logit_scale = static_cast<float>(args.scale), op.softcap = static_cast<float>(args.softcap);
  run(logits, op, op.rows, 1, kernels::cross_entropy_cpu, DRIVETRAIN_CUDA_KERNEL(cross_entropy_cuda), "cross entropy");
  if (!loss.is_cpu()) return loss.sum();
  // LibTorch's sum of many elements depends on the number of threads.
  return at::full({}, kernels::sum_in_order_cpu(in<double>(loss), loss.numel()), loss.options());
}

}  // namespace drivetrain::ops
