// Who multiplies matrices. On the CPU a handful of rows go to our kernel that reads every weight once (few_rows.h). Of
// more rows bfloat16 goes to our kernels where the processor has instructions for it, and float32 to one of LibTorch's
// two libraries: MKL is made for Intel's processors; on others oneDNN's products are 12 to 18 % faster
// (tools/bench/FIGURES.md).
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <drivetrain/toolkit/layers/few_rows.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/short_product.h>

namespace drivetrain {
namespace {

// Below, looking up oneDNN's compiled product costs more than it saves.
constexpr int64_t kWorthIt = int64_t{1} << 23;  // multiplications

bool is_intel() {
#ifdef __x86_64__
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

// oneDNN's product behind LibTorch's operator of compiled models; absent in builds without oneDNN.
const std::optional<c10::OperatorHandle>& onednn_linear() {
  static const auto handle =
      is_intel() ? std::nullopt : c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  return handle;
}

// By shape and processor alone, so that the same run takes the same path every time.
bool by_onednn(const at::Tensor& x, const at::Tensor& w) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && w.scalar_type() == at::kFloat &&
         x.numel() * w.size(0) >= kWorthIt && onednn_linear().has_value();
}

// x [N, I] w [O, I]^T + b
at::Tensor call_onednn(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  static const c10::List<std::optional<at::Scalar>> no_scalars;
  torch::jit::Stack stack;
  stack.reserve(6);
  stack.emplace_back(x.detach());
  stack.emplace_back(w.detach());
  stack.emplace_back(b.defined() ? std::optional(b.detach()) : std::nullopt);
  stack.emplace_back(std::string("none"));  // nothing behind the product
  stack.emplace_back(no_scalars);
  stack.emplace_back(std::optional<std::string>());
  onednn_linear()->callBoxed(stack);
  return std::move(stack.front()).toTensor();
}

}  // namespace

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::AutoGradMode off(false);
  if (auto few = few_rows_product(x, weight, bias)) return *std::move(few);
  if (auto short_one = short_product(x, weight.t(), bias)) return *std::move(short_one);
  if (by_onednn(x, weight)) return call_onednn(x, weight, bias);
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor product_backward(const at::Tensor& dy, const at::Tensor& weight) {
  const at::AutoGradMode off(false);
  if (auto short_one = short_product(dy, weight)) return *std::move(short_one);
  const at::Tensor w_IO = weight.t();
  return by_onednn(dy, w_IO) ? call_onednn(dy, w_IO, {}) : at::mm(dy, weight);
}

}  // namespace drivetrain
