#include <drivetrain/toolkit/layers/short_product.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/product/product.h"
#include "thread_scratch.h"

namespace drivetrain {
namespace {

using kernels::Dtype;
using kernels::ProductUnit;

// With fewer rows, as when a text grows token by token, packing the weight takes longer than all the rest.
constexpr int64_t kLeastRows = 8;
// Summands that are packed at a time: what all tasks read then stays in the caches, and little memory is taken.
constexpr int64_t kSlab = 8192;
// Results of this size do not stay in any cache until somebody reads them.
constexpr int64_t kStreamBytes = int64_t{4} << 20;

// An operand as it lies in memory: rows of it, or columns, are dense.
struct Stored {
  at::Tensor held;
  const void* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};
Stored stored(const at::Tensor& x) {
  const bool rows = x.stride(1) == 1 && x.stride(0) >= x.size(1);
  const bool columns = x.stride(0) == 1 && x.stride(1) >= x.size(0);
  Stored s{rows || columns ? x : x.contiguous(), nullptr, 0, columns && !rows};
  s.data = s.held.const_data_ptr();
  s.stride = s.held.stride(s.transposed ? 1 : 0);
  return s;
}

bool takes(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cpu() && a.scalar_type() == b.scalar_type() && a.numel() > 0 && b.numel() > 0 &&
         multiplies_short(a.scalar_type());
}

void run(kernels::Product op) {
  const at::Tensor packed = at::empty({kernels::product_packed_bytes(op)}, at::TensorOptions(at::kByte));
  op.packed = packed.mutable_data_ptr();
  at::parallel_for(0, kernels::product_panels(op), 1,
                   [&](int64_t begin, int64_t end) { kernels::product_pack(op, begin, end); });
  at::parallel_for(0, kernels::product_tasks(op), 1, [&](int64_t begin, int64_t end) {
    kernels::product_cpu(op, scratch_of_thread(kernels::product_scratch_bytes(op)), begin, end);
  });
}

kernels::Product product_of(const at::Tensor& a, const at::Tensor& b, const Stored& of_a, const Stored& of_b) {
  kernels::Product op;
  op.a = of_a.data, op.a_stride = of_a.stride, op.a_transposed = of_a.transposed;
  op.b = of_b.data, op.b_stride = of_b.stride, op.b_transposed = of_b.transposed;
  op.m = a.size(0), op.n = b.size(1), op.k = a.size(1);
  op.dtype = a.scalar_type() == at::kFloat ? Dtype::f32 : Dtype::bf16;
  op.split = op.dtype == Dtype::f32 && float_products() == FloatProducts::split;
  op.shares_a = op.m <= op.n;
  op.unit = kernels::product_unit();
  return op;
}

// Summands [first, first + count) of op.
kernels::Product slab(const kernels::Product& op, int64_t first, int64_t count) {
  const int64_t bytes = op.dtype == Dtype::f32 ? 4 : 2;
  kernels::Product part = op;
  part.k = count;
  part.a = static_cast<const char*>(op.a) + first * (op.a_transposed ? op.a_stride : 1) * bytes;
  part.b = static_cast<const char*>(op.b) + first * (op.b_transposed ? 1 : op.b_stride) * bytes;
  return part;
}

// op.c is float32.
void run_in_slabs(const kernels::Product& op) {
  for (int64_t first = 0; first < op.k; first += kSlab) {
    kernels::Product part = slab(op, first, std::min(kSlab, op.k - first));
    part.add = op.add || first > 0;
    if (first > 0) part.bias = nullptr;
    run(part);
  }
}

}  // namespace

FloatProducts float_products() {
  const at::Float32MatmulPrecision precision = at::globalContext().float32MatmulPrecision();
  if (precision == at::Float32MatmulPrecision::HIGHEST) return FloatProducts::whole;
  return float_products(precision == at::Float32MatmulPrecision::HIGH ? "high" : "medium");
}

FloatProducts float_products(const std::string& precision) {
  const ProductUnit unit = kernels::product_unit();
  // Three products take longer than one of float32 where they are not tiles'.
  if (precision == "high" && unit == ProductUnit::amx) return FloatProducts::split;
  return precision == "medium" && unit != ProductUnit::none ? FloatProducts::rounded : FloatProducts::whole;
}

bool multiplies_short(at::ScalarType type) {
  if (kernels::product_unit() == ProductUnit::none) return false;
  return type == at::kBFloat16 || (type == at::kFloat && float_products() != FloatProducts::whole);
}

std::optional<at::Tensor> short_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (a.size(0) < kLeastRows || !takes(a, b) || (bias.defined() && bias.scalar_type() != a.scalar_type()))
    return std::nullopt;
  const Stored of_a = stored(a), of_b = stored(b);
  const at::Tensor dense_bias = bias.defined() ? bias.contiguous() : bias;
  kernels::Product op = product_of(a, b, of_a, of_b);
  if (dense_bias.defined()) op.bias = dense_bias.const_data_ptr();
  at::Tensor c = at::empty({op.m, op.n}, a.options());
  op.c_dtype = op.dtype, op.c_stride = op.n;
  op.c = c.mutable_data_ptr();
  if (op.k <= kSlab) {
    run(op);
  } else if (op.c_dtype == Dtype::f32) {
    run_in_slabs(op);
  } else {
    // Rounded once, behind the last slab.
    const at::Tensor sums = at::empty({op.m, op.n}, a.options().dtype(at::kFloat));
    const at::Tensor wide_bias = dense_bias.defined() ? dense_bias.to(at::kFloat) : dense_bias;
    if (wide_bias.defined()) op.bias = wide_bias.const_data_ptr();
    op.c = sums.mutable_data_ptr(), op.c_dtype = Dtype::f32;
    run_in_slabs(op);
    c.copy_(sums);
  }
  return c;
}

bool short_product_into(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  if (a.size(0) < kLeastRows || a.size(1) > kSlab || !takes(a, b)) return false;
  const bool turned = b.stride(0) == 1 && a.size(0) < b.size(1);
  const at::Tensor left = turned ? b.t() : a, right = turned ? a.t() : b;
  const Stored of_left = stored(left), of_right = stored(right);
  kernels::Product op = product_of(left, right, of_left, of_right);
  op.c = y.mutable_data_ptr(), op.c_dtype = op.dtype, op.c_stride = y.stride(0), op.c_transposed = turned;
  op.alone = at::in_parallel_region() || at::get_num_threads() == 1;
  run(op);
  return true;
}

bool add_short_product(at::Tensor& sums, bool add, const at::Tensor& a, const at::Tensor& b) {
  if (sums.scalar_type() != at::kFloat || !sums.is_contiguous() || !takes(a, b)) return false;
  const Stored of_a = stored(a), of_b = stored(b);
  kernels::Product op = product_of(a, b, of_a, of_b);
  op.c = sums.mutable_data_ptr(), op.c_dtype = Dtype::f32, op.c_stride = op.n;
  op.add = add;
  op.stream = op.m * op.n * 4 >= kStreamBytes;
  run_in_slabs(op);
  return true;
}

ProductsText products_text(at::ScalarType dtype, const std::string& precision) {
  const ProductUnit unit = kernels::product_unit();
  const std::string asked = "float32_matmul_precision " + precision;
  const std::string without = precision == "highest" ? "" : "; " + asked + " changes nothing in a run of 16 bits";
  if (dtype == at::kHalf)
    return {"float16", (kernels::multiplies_float16() ? "AVX512-FP16; no faster than float32 where gradients are summed"
                                                      : "this processor has no AVX512-FP16: slow, for checks") +
                           without};
  if (dtype == at::kBFloat16 && unit == ProductUnit::none)
    return {"float32", "this processor has neither AMX nor AVX512-BF16: bfloat16 is no faster than float32" + without};
  if (dtype == at::kBFloat16)
    return {"bfloat16", (unit == ProductUnit::amx ? "AMX, sums in float32" : "AVX512-BF16, sums in float32") + without};
  if (precision == "highest") return {c10::toString(dtype), ""};
  switch (float_products(precision)) {
    case FloatProducts::split:
      return {"bfloat16", asked + ": three products of AMX for one, sums in float32"};
    case FloatProducts::rounded:
      return {"bfloat16", asked + ": operands rounded, sums in float32"};
    case FloatProducts::whole:
      return {"float32", asked + " changes nothing: this processor has no faster products"};
  }
  return {};
}

}  // namespace drivetrain
