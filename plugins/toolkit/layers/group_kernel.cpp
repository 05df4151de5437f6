#include "group_kernel.h"

#include <ATen/Parallel.h>

#include <drivetrain/toolkit/layers/short_product.h>

#include "kernels/product/group.h"
#include "thread_scratch.h"

namespace drivetrain {
namespace {

bool has_group_kernel(at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf; }

kernels::Dtype group_type(at::ScalarType type) {
  return type == at::kFloat ? kernels::Dtype::f32 : type == at::kHalf ? kernels::Dtype::f16 : kernels::Dtype::bf16;
}

}  // namespace

bool multiplies_groups(at::ScalarType type) {
  return has_group_kernel(type) && kernels::multiplies_groups() && !multiplies_short(type);
}

// AVX512 reads whole rows of a weight faster than parts of them; but every thread has to find a few blocks.
int64_t group_columns(int64_t groups) {
  return kernels::multiplies_groups_wide() && groups >= 2 * at::get_num_threads() ? 2048 : 512;
}

void group_product(const at::Tensor& c, bool add, bool stream, const StoredRows& a, const StoredRows& b) {
  kernels::GroupProduct op;
  op.a = a.x.const_data_ptr(), op.a_stride = a.x.stride(0), op.a_rows = a.index, op.a_transposed = a.transposed;
  op.b = b.x.const_data_ptr(), op.b_stride = b.x.stride(0), op.b_rows = b.index, op.b_transposed = b.transposed;
  op.c = c.mutable_data_ptr(), op.c_stride = c.stride(0), op.add = add, op.stream = stream;
  op.m = c.size(0), op.n = c.size(1), op.k = a.transposed ? a.rows : a.x.size(1);
  op.dtype = group_type(a.x.scalar_type()), op.c_dtype = group_type(c.scalar_type());
  kernels::group_product_cpu(op, scratch_of_thread(kernels::group_product_scratch_bytes(op)));
}

}  // namespace drivetrain
