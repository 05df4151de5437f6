// Layers whose products are in 8 bits, for block_rates.cpp: a forward's product and both of a backward. Operands are
// made once, so no cast is timed. A product in 8 bits sums along the rows of both operands, so gradients read them
// transposed. Types of results and kinds of sums are those of plugins/precision/fp8.
#pragma once

#include <ATen/BlasBackend.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/_scaled_mm_v2.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

namespace drivetrain {

inline at::Tensor numbers(const at::Device& device, at::ScalarType type, at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions(at::kFloat).device(device)).to(type);
}

// One scale for all of a tensor.
class EightBitLayer {
 public:
  EightBitLayer(const at::Device& device, int64_t rows, int64_t out, int64_t in)
      : x_(numbers(device, kType, {rows, in})),
        dy_(numbers(device, kType, {rows, out})),
        weight_(numbers(device, kType, {out, in})),
        x_transposed_(transposed(x_)),
        dy_transposed_(transposed(dy_)),
        weight_transposed_(transposed(weight_)),
        scale_(at::ones({}, at::TensorOptions(at::kFloat).device(device))) {}
  void forward() { y_ = product_of(x_, weight_, at::kBFloat16, /*fast=*/true); }
  void backward() {
    product_of(dy_, weight_transposed_, at::kBFloat16, /*fast=*/false);
    product_of(dy_transposed_, x_transposed_, at::kFloat, /*fast=*/false);
    y_.reset();
  }

 private:
  static constexpr at::ScalarType kType = at::kFloat8_e4m3fn;

  static at::Tensor transposed(const at::Tensor& t) { return t.view(at::kByte).t().contiguous().view(kType); }
  at::Tensor product_of(const at::Tensor& a, const at::Tensor& b, at::ScalarType out, bool fast) const {
    return at::_scaled_mm(a, b.t(), scale_, scale_, {}, {}, out, fast);
  }

  at::Tensor x_, dy_, weight_, x_transposed_, dy_transposed_, weight_transposed_, scale_, y_;
};

// The same where each row of 128 numbers has a scale, and each square of a weight (plugins/precision/fp8/blocks.h). On
// CUDA, by cuBLASLt on Hopper alone; all sizes are multiples of 512.
class BlockScaledLayer {
 public:
  BlockScaledLayer(const at::Device& device, int64_t rows, int64_t out, int64_t in)
      : x_(of_rows(device, rows, in)),
        dy_(of_rows(device, rows, out)),
        weight_(of_squares(device, out, in)),
        x_transposed_(of_rows(device, in, rows)),
        dy_transposed_(of_rows(device, out, rows)),
        weight_transposed_(of_squares(device, in, out)) {}
  void forward() { y_ = product_of(x_, weight_, at::kBFloat16); }
  void backward() {
    product_of(dy_, weight_transposed_, at::kBFloat16);
    product_of(dy_transposed_, x_transposed_, at::kFloat);
    y_.reset();
  }

 private:
  using Kind = at::blas::ScalingType;
  struct Operand {
    at::Tensor values, scales;
    Kind kind;
  };

  static constexpr int64_t kBlock = 128;

  static at::Tensor ones(const at::Device& device, int64_t outer, int64_t inner) {
    return at::ones({outer, inner}, at::TensorOptions(at::kFloat).device(device)).t();
  }
  static Operand of_rows(const at::Device& device, int64_t rows, int64_t columns) {
    return {numbers(device, at::kFloat8_e4m3fn, {rows, columns}), ones(device, columns / kBlock, rows),
            Kind::BlockWise1x128};
  }
  static Operand of_squares(const at::Device& device, int64_t rows, int64_t columns) {
    return {numbers(device, at::kFloat8_e4m3fn, {rows, columns}), ones(device, rows / kBlock, columns / kBlock),
            Kind::BlockWise128x128};
  }
  static at::Tensor product_of(const Operand& a, const Operand& b, at::ScalarType out) {
    return at::_scaled_mm_v2(a.values, b.values.t(), {a.scales}, {static_cast<int64_t>(a.kind)}, {}, {b.scales},
                             {static_cast<int64_t>(b.kind)}, {}, {}, out);
  }

  Operand x_, dy_, weight_, x_transposed_, dy_transposed_, weight_transposed_;
  at::Tensor y_;
};

}  // namespace drivetrain
