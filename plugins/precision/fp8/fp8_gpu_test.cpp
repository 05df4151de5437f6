// Scales of blocks on a GPU: casts to the bit of the CPU's, products and layers within what its sums may be off.
#include <ATen/ops/equal.h>

#include <cmath>

#include "blocks.h"
#include "contract/device_runtime.h"
#include "support/gpu.h"
#include "test_layer.h"
#include "test_operands.h"

namespace drivetrain::test {
namespace {

const at::Device kGpu(at::kCUDA, 0);

class Fp8CastsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    DRIVETRAIN_NEEDS_GPU();
    arch_ = device_runtime()->facts(0).arch;
  }
  int arch_ = 0;
};

class Fp8OnGpu : public Fp8CastsOnGpu {
 protected:
  void SetUp() override {
    Fp8CastsOnGpu::SetUp();
    if (IsSkipped()) return;
    if (arch_ != fp8::kArchOfBlocks) GTEST_SKIP() << "GPU 0 is sm_" << arch_ << ", wanted sm_" << fp8::kArchOfBlocks;
  }
};

// Every block of 128 columns has another size.
at::Tensor of_many_sizes(int64_t N, int64_t K, uint64_t seed) {
  const at::Tensor x = numbers({N, K}, seed);
  for (int64_t block = 0; block * 128 < K; ++block)
    x.narrow(1, block * 128, std::min<int64_t>(128, K - block * 128)).mul_(std::ldexp(1, static_cast<int>(block % 4)));
  return x.to(at::kBFloat16);
}

// What is no padding, as bytes and numbers of the CPU.
void expect_same_cast(const Scaled& gpu, const Scaled& cpu, int64_t R, int64_t S) {
  const auto inside = [&](const Scaled& t) { return t.values.view(at::kByte).narrow(0, 0, R).narrow(1, 0, S).cpu(); };
  EXPECT_TRUE(at::equal(inside(gpu), inside(cpu)));
  const at::Tensor inverse = gpu.inverse.cpu().narrow(0, 0, cpu.inverse.size(0)).narrow(1, 0, cpu.inverse.size(1));
  EXPECT_TRUE(at::equal(inverse, cpu.inverse));
}

TEST_F(Fp8OnGpu, casts_of_blocks_have_the_bits_of_the_cpu) {
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{256, 384}, {200, 272}, {17, 48}, {100, 640}})
    for (const int64_t tall : {int64_t{1}, kBlock}) {
      SCOPED_TRACE(testing::Message() << N << " x " << K << " tall " << tall);
      const at::Tensor x = of_many_sizes(N, K, 3), there = x.to(kGpu);
      expect_same_cast(cast_blocks(there, tall), cast_blocks(x, tall), N, K);
      expect_same_cast(cast_blocks_transposed(there, tall), cast_blocks_transposed(x, tall), K, N);
      const Both both = cast_blocks_both(there, tall);
      expect_same_cast(both.rows, cast_blocks(x, tall), N, K);
      expect_same_cast(both.columns, cast_blocks_transposed(x, tall), K, N);
    }
}

// Tensor cores keep 14 bits of a sum of 128 at the least, and sums of these are float32.
void expect_near(const at::Tensor& gpu, const at::Tensor& cpu, const at::Tensor& sizes) {
  ASSERT_EQ(gpu.sizes(), cpu.sizes());
  ASSERT_EQ(gpu.scalar_type(), cpu.scalar_type());
  const double rounding = cpu.scalar_type() == at::kFloat ? 0x1p-23 : 0x1p-7;
  const at::Tensor found = gpu.cpu().to(at::kDouble), wanted = cpu.to(at::kDouble);
  const at::Tensor off = (found - wanted).abs(), allowed = sizes * 0x1p-11 + wanted.abs() * rounding + 1e-30;
  EXPECT_TRUE(off.le(allowed).all().item<bool>())
      << "off by " << (off / allowed).max().item<double>() << " of what may be";
}

TEST_F(Fp8OnGpu, products_of_blocks_are_those_of_the_cpu) {
  for (const int64_t K : {48, 128, 384, 640, 1024})
    for (const int64_t N : {100, 256})
      for (const int64_t tall : {int64_t{1}, kBlock}) {
        SCOPED_TRACE(testing::Message() << "N " << N << " K " << K << " tall " << tall);
        const at::Tensor x = of_many_sizes(N, K, 1), w = of_many_sizes(208, K, 2);
        const auto cast = [&](const at::Tensor& a, const at::Tensor& b) {
          return std::pair(cast_blocks(a, 1), cast_blocks(b, tall));
        };
        const auto [a, b] = cast(x.to(kGpu), w.to(kGpu));
        const auto [c, d] = cast(x, w);
        const at::Tensor sizes = x.to(at::kDouble).abs().matmul(w.to(at::kDouble).abs().t());
        const at::Tensor bias = numbers({208}, 4).to(at::kBFloat16);
        for (const at::Tensor& added : {at::Tensor(), bias})
          expect_near(fp8::product(a, b, at::kBFloat16, Sums::fast, added.defined() ? added.to(kGpu) : added),
                      fp8::product(c, d, at::kBFloat16, Sums::fast, added), sizes);
        expect_near(fp8::product(a, b, at::kFloat, Sums::precise), fp8::product(c, d, at::kFloat, Sums::precise),
                    sizes);
      }
}

TEST_F(Fp8OnGpu, a_layer_has_the_three_products_of_the_cpu) {
  for (const bool keep : {false, true}) {
    Recipe recipe;
    recipe.delayed = false, recipe.blocks = true, recipe.keep_weights = keep;
    const Layer cpu(recipe, 272, 160), gpu(recipe, 272, 160);
    for (const ParamPtr& param : {gpu.weight, gpu.bias})
      param->tensor = param->tensor.to(kGpu), param->grad = param->grad.to(kGpu);
    const at::Tensor x = numbers({300, 272}, 1).to(at::kBFloat16), dy = numbers({300, 160}, 2, 1e-5).to(at::kBFloat16);
    const auto sizes = [](const at::Tensor& a, const at::Tensor& b) {
      return a.to(at::kDouble).abs().matmul(b.to(at::kDouble).abs());
    };
    cpu.scaling->step_begin(), gpu.scaling->step_begin();
    expect_near(gpu.forward(x.to(kGpu)), cpu.forward(x), sizes(x, cpu.weight->tensor.t()));
    expect_near(gpu.backward(dy.to(kGpu), x.to(kGpu)), cpu.backward(dy, x), sizes(dy, cpu.weight->tensor));
    expect_near(gpu.weight->grad, cpu.weight->grad, sizes(dy.t(), x));
    cpu.scaling->step_end(), gpu.scaling->step_end();
  }
}

// As bytes: what the cast computes is what it would have read.
TEST_F(Fp8CastsOnGpu, operands_that_are_computed_in_the_cast_have_the_bits_of_two_passes) {
  const auto equal = [](const Scaled& a, const Scaled& b) {
    EXPECT_TRUE(at::equal(a.values.view(at::kByte).cpu(), b.values.view(at::kByte).cpu()));
    EXPECT_TRUE(at::equal(a.inverse.cpu(), b.inverse.cpu()));
  };
  std::vector<std::pair<Role, Operand>> all;
  for (const Operand& x : inputs(kGpu)) all.emplace_back(Role::input, x);
  for (const Operand& dy : gradients(kGpu)) all.emplace_back(Role::gradient, dy);
  for (const Recipe& recipe : recipes())
    for (const auto& [role, operand] : all) {
      if (recipe.blocks && arch_ < fp8::kArchOfBlocks) continue;  // has no such casts
      EXPECT_TRUE(operand.is_tensor() || operand.fits_cast(role == Role::gradient));
      const Operand value(operand.value().reshape({-1, operand.columns()}));
      Scaling scaling(recipe);
      const int64_t layer = scaling.add_layer("fc");
      scaling.attach({"fc"}, nullptr, nullptr, kGpu);
      scaling.step_begin();
      const Operand x = operand.is_tensor() ? value : operand;
      equal(scaling.cast(layer, role, x), scaling.cast(layer, role, value));
      equal(scaling.cast_transposed(layer, role, x), scaling.cast_transposed(layer, role, value));
      const Both both = scaling.cast_both(layer, role, x);
      equal(both.rows, scaling.cast(layer, role, value));
      equal(both.columns, scaling.cast_transposed(layer, role, value));
      scaling.step_end();
    }
}

}  // namespace
}  // namespace drivetrain::test
