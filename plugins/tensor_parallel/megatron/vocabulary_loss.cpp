// By the kernels of kernels/loss for their devices and types, by LibTorch's operators for the rest (float64, 16 bits on
// the CPU).
#include "vocabulary_loss.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/square.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <limits>

#include <drivetrain/device.h>

#include "kernels/loss/part_cross_entropy.h"
#include "kernels/optimizer/square_sum.h"

namespace drivetrain::megatron {
namespace {

using kernels::PartCrossEntropy;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool has_kernel(const at::Tensor& x) {
  const at::ScalarType t = x.scalar_type();
  if (!x.is_contiguous()) return false;
  return (x.is_cpu() || (kernels::kWithCuda && x.is_cuda())) &&
         (t == at::kFloat || t == at::kBFloat16 || t == at::kHalf);
}

void begin(const at::Tensor& logits, const PartCrossEntropy& op) {
  if (logits.is_cpu())
    return at::parallel_for(0, op.rows, 1,
                            [&](int64_t from, int64_t to) { part_cross_entropy_begin_cpu(op, from, to); });
#ifdef DRIVETRAIN_WITH_CUDA
  check_launch(part_cross_entropy_begin_cuda(op, current_stream(logits.device())), "cross entropy of a part");
#endif
}

void end(const at::Tensor& logits, const PartCrossEntropy& op) {
  if (logits.is_cpu())
    return at::parallel_for(0, op.rows, 1, [&](int64_t from, int64_t to) { part_cross_entropy_end_cpu(op, from, to); });
#ifdef DRIVETRAIN_WITH_CUDA
  check_launch(part_cross_entropy_end_cuda(op, current_stream(logits.device())), "cross entropy of a part");
#endif
}

at::Tensor by_kernel(at::Tensor& logits, const at::Tensor& labels, const Exchange& exchange, const Cut::Part& part,
                     int64_t vocabulary, bool gradient, const ops::LogitArgs& args) {
  PartCrossEntropy op;
  op.logits = logits.mutable_data_ptr(), op.labels = labels.const_data_ptr<int64_t>();
  op.rows = logits.size(0), op.columns = logits.size(1);
  op.logit_scale = static_cast<float>(args.scale), op.softcap = static_cast<float>(args.softcap);
  op.first = part.first, op.valid = part.valid, op.vocabulary = vocabulary;
  op.dtype = logits.scalar_type() == at::kFloat      ? kernels::Dtype::f32
             : logits.scalar_type() == at::kBFloat16 ? kernels::Dtype::bf16
                                                     : kernels::Dtype::f16;
  const at::Tensor own = at::empty({op.rows, 3}, logits.options().dtype(at::kDouble));
  op.part = own.mutable_data_ptr<double>();
  begin(logits, op);
  const at::Tensor all = exchange.gather(own).finish();
  const at::Tensor loss = at::empty({op.rows}, own.options());
  op.parts = all.const_data_ptr<double>(), op.ranks = all.size(0);
  op.loss = loss.mutable_data_ptr<double>(), op.gradient = gradient;
  end(logits, op);
  if (!loss.is_cpu()) return loss.sum();
  // LibTorch's sum of many elements depends on the number of threads.
  return at::full({}, kernels::sum_in_order_cpu(op.loss, loss.numel()), loss.options());
}

at::Tensor by_operators(at::Tensor& logits, const at::Tensor& labels, const Exchange& exchange, const Cut::Part& part,
                        int64_t vocabulary, bool gradient, const ops::LogitArgs& args) {
  const at::ScalarType wide = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor counts = labels.ge(0), own_label = labels - part.first;
  const at::Tensor is_own = at::bitwise_and(at::bitwise_and(own_label.ge(0), own_label.lt(part.valid)), counts);
  const at::Tensor column = at::where(is_own, own_label, at::full({}, 0, own_label.options())).unsqueeze(1);
  at::Tensor valid = logits.narrow(1, 0, part.valid);
  const at::Tensor x = ops::logits_of(valid.to(wide), args);
  const auto options = logits.options().dtype(at::kDouble);
  at::Tensor top = at::full({logits.size(0)}, -kInfinity, options), sum = at::full({logits.size(0)}, 0.0, options);
  if (part.valid > 0) {
    const at::Tensor largest = at::amax(x, 1, true);
    top = largest.squeeze(1).to(at::kDouble);
    sum = x.sub(largest).exp_().sum(1).to(at::kDouble);
  }
  const at::Tensor of_label = ops::logits_of(at::gather(logits, 1, column).squeeze(1).to(wide), args);
  const at::Tensor target = at::where(is_own, of_label.to(at::kDouble), at::full({}, 0.0, options));
  const at::Tensor all = exchange.gather(at::stack({top, sum, target}, 1)).finish();
  const at::Tensor tops = all.select(2, 0), whole_top = at::amax(tops, 0);
  const at::Tensor whole_sum = all.select(2, 1).mul(tops.sub(whole_top).exp_()).sum(0);
  at::Tensor each = whole_sum.log() + (whole_top - all.select(2, 2).sum(0));
  each = at::where(labels.ge(vocabulary), at::full({}, std::numeric_limits<double>::quiet_NaN(), options), each);
  const at::Tensor loss = at::where(counts, each, at::full({}, 0.0, options)).sum();
  if (!gradient) return loss;
  at::Tensor share = x.sub(whole_top.to(wide).unsqueeze(1)).exp_().div_(whole_sum.to(wide).unsqueeze(1));
  if (part.valid > 0) share.scatter_add_(1, column, is_own.to(wide).neg_().unsqueeze(1));
  const at::Tensor used = at::bitwise_and(counts, labels.lt(vocabulary)).unsqueeze(1).to(wide);
  if (args.softcap > 0) share.mul_(1 - at::square(x / args.softcap));
  logits.narrow(1, part.valid, logits.size(1) - part.valid).zero_();
  valid.copy_(share.mul_(used * args.scale));
  return loss;
}

}  // namespace

at::Tensor vocabulary_loss_(at::Tensor& logits, const at::Tensor& labels, const Exchange& exchange,
                            const Cut::Part& part, int64_t vocabulary, bool gradient, const ops::LogitArgs& args) {
  const at::Tensor dense = labels.contiguous();
  return has_kernel(logits) ? by_kernel(logits, dense, exchange, part, vocabulary, gradient, args)
                            : by_operators(logits, dense, exchange, part, vocabulary, gradient, args);
}

}  // namespace drivetrain::megatron
