// Gradients that are sums over rows: biases, norm weights, embedding rows. Always added in a fixed order.
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include <drivetrain/toolkit/ops/ops.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/embedding/embedding.h"
#include "kernels/norm/norm.h"

namespace drivetrain::ops {
namespace {

template <class T>
void add_rows(T* out, const T* rows, const int64_t* ids, int64_t count, int64_t dim, int64_t vocabulary) {
  // Threads share the columns, so every row is added in order of position whatever their number.
  at::parallel_for(0, dim, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= vocabulary) continue;  // the forward pass has refused it already
      T* to = out + ids[i] * dim;
      const T* from = rows + i * dim;
      for (int64_t d = begin; d < end; ++d) to[d] += from[d];
    }
  });
}

void add_by_kernel(const at::Tensor& slot, const at::Tensor& ids, const at::Tensor& dy) {
  kernels::EmbeddingBackward op;
  op.dy = in(dy), op.ids = in<int64_t>(ids), op.dweight = out<float>(slot), op.dtype = kernel_dtype(dy);
  op.tokens = ids.numel(), op.vocabulary = slot.size(0), op.columns = slot.size(1);
  at::Tensor order, sorted;
  if (!slot.is_cpu()) {
    const bool narrow = op.vocabulary <= std::numeric_limits<int32_t>::max();  // half of the passes of a radix sort
    order = at::argsort(narrow ? ids.to(at::kInt) : ids, /*stable=*/true);
    sorted = at::index_select(ids, 0, order);
    op.order = in<int64_t>(order), op.sorted_ids = in<int64_t>(sorted);
  }
  run(slot, op, op.columns, 64, kernels::embedding_backward_cpu, DRIVETRAIN_CUDA_KERNEL(embedding_backward_cuda),
      "embedding backward");
}

bool is_half(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf; }

// slot [vocabulary, D] += the rows of each id, in order of position.
void add_all_rows(at::Tensor slot, const at::Tensor& ids, const at::Tensor& rows) {
  if (slot.scalar_type() == at::kFloat) {
    const at::Tensor readable = has_kernel(rows) ? rows : rows.to(at::kFloat);
    if (has_kernel(readable)) return add_by_kernel(slot, ids, readable);
  }
  const at::Tensor same = rows.to(slot.scalar_type());
  if (slot.is_cpu() && slot.scalar_type() == at::kDouble)
    add_rows(slot.mutable_data_ptr<double>(), same.const_data_ptr<double>(), ids.const_data_ptr<int64_t>(), ids.numel(),
             same.size(1), slot.size(0));
  else
    slot.index_add_(0, ids, same);
}

at::Tensor sum_of_rows(const at::Tensor& like, const at::Tensor& ids, const at::Tensor& rows) {
  const at::Tensor sum = at::zeros(like.sizes(), like.options().dtype(at::kFloat));
  add_all_rows(sum, ids, rows);
  return sum;
}

}  // namespace

namespace {

// Slots of 16 bits on the CPU are LibTorch's.
bool sums_by_kernel(const Param& param) {
  return has_kernel(param.grad) && (param.grad.is_cuda() || param.grad.scalar_type() == at::kFloat);
}

// The param's slot := or += sum over rows.
void add_columns(Param& param, const at::Tensor& partial) {
  const auto [slot, add] = param.write_grad();
  kernels::ColumnSum op;
  op.partial = in(partial), op.partial_dtype = kernel_dtype(partial), op.rows = partial.size(0),
  op.columns = partial.size(1);
  op.out = out(slot), op.add = add, op.dtype = kernel_dtype(slot);
  run(slot, op, op.columns, 256, kernels::column_sum_cpu, DRIVETRAIN_CUDA_KERNEL(column_sum_cuda), "column sum");
}

// Sums over blocks of rows of dy [N, D] on CUDA, [blocks, D] float32.
at::Tensor parts_of(const at::Tensor& dy) {
  kernels::ColumnParts op;
  op.x = in(dy), op.dtype = kernel_dtype(dy), op.rows = dy.size(0), op.columns = dy.size(1);
  const at::Tensor partial =
      at::empty({kernels::blocks_of(op.rows, kernels::kNormRows), op.columns}, dy.options().dtype(at::kFloat));
  op.partial = out<float>(partial);
  check_launch(DRIVETRAIN_CUDA_KERNEL(column_parts_cuda)(op, current_stream(dy.device())), "column parts");
  return partial;
}

}  // namespace

void add_partial_sums(Param& param, const at::Tensor& partial) {
  if (sums_by_kernel(param)) return add_columns(param, partial);
  accumulate_grad(param, partial.sum(0));
}

// In the slot's type: a sum over all rows is not rounded to 16 bits on its way.
void accumulate_bias_grad(Param& bias, const at::Tensor& dy) {
  if (is_half(dy) && has_kernel(dy) && sums_by_kernel(bias)) {
    const at::Tensor rows = dy.reshape({-1, dy.size(-1)}).contiguous();
    return add_columns(bias, rows.is_cpu() ? rows : parts_of(rows));
  }
  accumulate_grad(bias, at::sum(dy.reshape({-1, dy.size(-1)}), 0, false, bias.grad.scalar_type()));
}

void accumulate_embedding_grad(Param& weight, const at::Tensor& given_ids, const at::Tensor& dy) {
  const at::Tensor ids = given_ids.reshape({-1}).contiguous();
  const at::Tensor rows = dy.reshape({ids.numel(), -1}).contiguous();
  // A frequent token's rows are added up in float32, and the sum is rounded once.
  if (is_half(weight.grad)) return accumulate_grad(weight, sum_of_rows(weight.grad, ids, rows));
  auto [slot, add] = weight.write_grad();
  if (!add) slot.zero_();
  add_all_rows(slot, ids, rows);
}

}  // namespace drivetrain::ops
