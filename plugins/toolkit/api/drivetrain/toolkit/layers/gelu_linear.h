// The two linear layers of an MLP whose products have GELU (gelu_tanh), or its gradient, in their epilogue
// (kernels/product/gelu_product.h): on CUDA, in bfloat16 and float16, where all widths are multiples of 8. No autograd.
//
// Legend: N rows, I in, O out. Thread and stream: as linear.h.
#pragma once

#include <drivetrain/layers.h>

namespace drivetrain {

// What a linear layer may be besides. Another toolkit may be in the process: a change of the members changes the name.
// A layer that decorates another hands it on only where it adds nothing to the product.
class GeluLinear2 {
 public:
  virtual ~GeluLinear2() = default;
  // Whether it has the two below for activations of this type there, where the GPU has kernels. Always the same.
  virtual bool has_gelu(at::DeviceType device, at::ScalarType dtype) const = 0;
  // Whether this GPU has a kernel for so many rows. Always the same. Within a visit, when has_gelu is true.
  virtual bool finds_gelu(int64_t rows, bool backward) const = 0;
  // The first layer: pre := x W^T + bias, which backward wants; returns gelu(pre).
  virtual at::Tensor apply_gelu(const at::Tensor& x, at::Tensor& pre) const = 0;
  // The second layer, x = gelu(pre): Linear::apply_backward, that returns the gradient of pre in place of that of x.
  virtual at::Tensor apply_backward_gelu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& pre,
                                         WeightWork& work) const = 0;
};
// Of any layer: null where it has none.
const GeluLinear2* gelu_of(const Linear& layer, at::DeviceType device, at::ScalarType dtype);

// The products; Error(config) where cuBLASLt has none for the shape on this GPU, which gelu_product_found asks before,
// of N rows. x [N, I], weight [O, I], bias [O] or undefined; sets pre [N, O] and returns gelu(pre). And dy [N, O],
// weight [O, I], pre [N, I]: returns [N, I].
bool gelu_product_fits(at::DeviceType device, at::ScalarType dtype, int64_t in, int64_t out);
bool gelu_product_found(const at::Tensor& weight, const at::Tensor& bias, int64_t rows, bool backward);
at::Tensor gelu_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& pre);
at::Tensor gelu_product_backward(const at::Tensor& dy, const at::Tensor& weight, const at::Tensor& pre);

}  // namespace drivetrain
