#include <drivetrain/toolkit/layers/layer_memory.h>

#include <cmath>

#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/memory_trace.h>
#include "kernels/activation/activation.h"
#include "kernels/norm/norm.h"
#include "kernels/product/gelu_product.h"
#include "kernels/rotary/rotary.h"

namespace drivetrain::layer_memory {
namespace {

double wide(const VisitShape& s) { return s.dtype == at::kDouble ? 8 : 4; }  // statistics and sums

double blocks(double rows, int64_t of) { return std::ceil(rows / static_cast<double>(of)); }

bool is_half(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

}  // namespace

TensorSizes norm_statistics(const VisitShape& s, double tokens, bool rms) {
  return TensorSizes().add(tokens * wide(s), rms ? 1 : 2);
}

// By operators: the input in a wide type, without its mean, times rstd.
TensorSizes norm_again(const VisitShape& s, double tokens, double columns) {
  return has_kernels(s) ? TensorSizes() : TensorSizes().add(tokens * columns * wide(s), 2);
}

// By operators: x_hat, d, g and the three parts of dx.
TensorSizes norm_backward(const VisitShape& s, double tokens, double columns) {
  const int64_t of = s.on_cpu ? kernels::kNormRows : kernels::norm_rows_cuda(static_cast<int64_t>(tokens));
  if (has_kernels(s)) return TensorSizes().add(2 * blocks(tokens, of) * columns * 4);
  return TensorSizes().add(tokens * columns * wide(s), s.dtype == at::kDouble ? 5 : 6);
}

// In one pass: the weights' sums over blocks of tokens, on a device of each head. Else the split q, k and v, and the
// norms' results; the rotation's are gone by the end.
TensorSizes qk_norm_backward(const VisitShape& s, const BlockSpec& block, double columns) {
  const double share = static_cast<double>(s.tensor_ranks), C = static_cast<double>(block.head_dim);
  const double heads = static_cast<double>(block.heads + block.kv_heads) / share;
  if (has_kernels(s) && block.qk_norm == NormOver::head)
    return TensorSizes().add(blocks(s.tokens, kernels::kRotaryRows) * (s.on_cpu ? 2 : heads) * C * 4);
  return TensorSizes().add(s.tokens * columns * s.element()).add(s.tokens * heads * C * s.element());
}

TensorSizes activation(const VisitShape& s, double tokens, double in, bool bias) {
  return has_kernels(s) || !bias ? TensorSizes() : TensorSizes().add(tokens * in * s.element());
}

TensorSizes activation_backward(const VisitShape& s, double tokens, double in, bool bias) {
  TensorSizes sizes;
  if (!bias) return sizes;
  if (has_kernels(s)) return sizes.add(blocks(tokens, kernels::kActivationRows) * in * 4);
  return sizes.add(tokens * in * s.element());
}

TensorSizes gelu_product() { return TensorSizes().add(static_cast<double>(kernels::kGeluProductWorkspace)); }

// Operands of another type than the slot are copied, except where the device's product widens.
TensorSizes weight_gradient(const VisitShape& s, double tokens, double out, double in) {
  TensorSizes sizes;
  if (s.dtype == s.grad || !s.on_cpu) return sizes;
  const auto element = static_cast<double>(c10::elementSize(s.grad));
  return sizes.add(tokens * out * element).add(tokens * in * element);
}

TensorSizes chunked_loss(const VisitShape& s, double tokens, double hidden, double columns) {
  const double e = s.element();
  const auto rows = static_cast<double>(
      ops::loss_rows_at_once(static_cast<int64_t>(tokens), static_cast<int64_t>(columns * e), s.on_cpu));
  const double logits = rows * columns * e, part = rows * hidden * e, dx = tokens * hidden * e;
  MemoryTrace trace;
  trace.take(dx).take(logits);
  if (!has_kernels(s)) trace.moment(rows * columns * wide(s), 2);  // logits and their softmax in a wide type
  trace.moment(part);                                              // of dx, copied to its place or put there
  trace.take(part).moment(weight_gradient(s, rows, columns, hidden));
  return trace.most();
}

// In 16 bits the sum has a table of its own, which is rounded once.
TensorSizes embedding_gradient(const VisitShape& s, double tokens, double rows, double columns) {
  TensorSizes sizes;
  if (is_half(s.grad)) sizes.add(rows * columns * 4);
  if (s.dtype != s.grad && s.on_cpu) sizes.add(tokens * columns * 4);
  return sizes;
}

}  // namespace drivetrain::layer_memory
