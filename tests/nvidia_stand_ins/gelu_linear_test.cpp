// Products with GELU in their epilogue, as a run on CUDA asks for them: through the door to the CUDA library, which
// finds a stand-in for cuBLASLt that reads the host's memory. Beside the product and the passes that they stand for.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/gelu_linear.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/plain_layers.h>
#include <drivetrain/toolkit/ops/ops.h>
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

class GeluLinear : public ::testing::Test {
 protected:
  void SetUp() override {
    void* const stand_in = dlopen(DRIVETRAIN_BUILD_DIR "/tests/nvidia/libcublasLt.so.13", RTLD_NOW);
    ASSERT_TRUE(stand_in) << dlerror();
    alive = reinterpret_cast<int64_t (*)()>(dlsym(stand_in, "stand_in_alive"));
    ASSERT_TRUE(dlopen(DRIVETRAIN_BUILD_DIR "/lib/libdrivetrain_kernels_cuda.so", RTLD_NOW)) << dlerror();
  }
  int64_t (*alive)() = nullptr;  // what cuBLASLt was asked to make, and not to destroy
};

// What a product says where cuBLASLt does not do as it should; empty: nothing.
std::string problem(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor pre;
  try {
    gelu_product(x, w, {}, pre);
  } catch (const Error& e) {
    return concat(e.code() == ErrorCode::config ? "" : "another code: ", e.what());
  }
  return {};
}

at::Tensor numbers(std::vector<int64_t> shape, const char* name, at::ScalarType dtype, double std = 1) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  at::Tensor flat = at::zeros({count}, at::TensorOptions(at::kFloat));
  fill_normal(flat, 3, name, 0, std);
  return flat.view(shape).to(dtype);
}

// Both have rounded what lies between to 16 bits, or not: within two roundings of the largest.
void expect_near(const at::Tensor& found, const at::Tensor& wanted, const char* what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  ASSERT_EQ(found.scalar_type(), wanted.scalar_type()) << what;
  const double rounding = found.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
  const at::Tensor truth = wanted.to(at::kDouble);
  EXPECT_LE((found.to(at::kDouble) - truth).abs().max().item<double>(), 2 * rounding * truth.abs().max().item<double>())
      << what;
}

struct Layer {
  Layer(int64_t in, int64_t out, at::ScalarType dtype, bool bias = true) {
    LinearSpec spec;
    spec.name = "fc", spec.in = in, spec.out = out, spec.bias = bias;
    layer = make_plain_layers(nullptr)->linear(spec);
    for (const ParamPtr& param : layer->params()) {
      param->tensor = numbers(param->layout.global_shape, param->name.c_str(), dtype, 0.3);
      param->grad = at::zeros(param->tensor.sizes(), at::TensorOptions(at::kFloat));
    }
  }
  const GeluLinear2& gelu() const { return dynamic_cast<const GeluLinear2&>(*layer); }
  std::shared_ptr<Linear> layer;
};

// A strategy's, in 8 bits, say.
struct OtherProduct : LinearProduct {
  at::Tensor forward(const at::Tensor&, const Param&, const at::Tensor&) const override { return {}; }
  at::Tensor backward(const at::Tensor&, const at::Tensor&, const ParamPtr&, bool, WeightWork&) const override {
    return {};
  }
};

constexpr int64_t kRows[] = {1, 7, 66};
constexpr at::ScalarType kTypes[] = {at::kBFloat16, at::kHalf};

TEST_F(GeluLinear, forward_is_the_product_and_the_pass_behind_it) {
  for (const at::ScalarType dtype : kTypes)
    for (const int64_t rows : kRows)
      for (const bool bias : {true, false}) {
        const Layer fc(24, 40, dtype, bias);
        const at::Tensor x = numbers({rows, 3, 24}, "x", dtype);
        const at::Tensor wanted = fc.layer->apply(x, {}, nullptr);
        at::Tensor pre;
        const at::Tensor act = fc.gelu().apply_gelu(x, pre);
        expect_near(pre, wanted, "pre");
        expect_near(act, ops::activation(ops::Activation::gelu_tanh, wanted, {}), "act");
      }
}

TEST_F(GeluLinear, backward_is_the_product_and_the_pass_behind_it_with_the_layers_own_gradients) {
  for (const at::ScalarType dtype : kTypes)
    for (const int64_t rows : kRows) {
      const Layer one(40, 24, dtype), other(40, 24, dtype);
      const at::Tensor dy = numbers({rows, 3, 24}, "dy", dtype), pre = numbers({rows, 3, 40}, "pre", dtype);
      const at::Tensor act = ops::activation(ops::Activation::gelu_tanh, pre, {}), before = pre.clone();
      // Twice: gradients of micro-batches are added.
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        WeightWork work(nullptr);
        const at::Tensor dact = one.layer->apply_backward(dy, act, {}, work);
        const at::Tensor wanted = ops::activation_backward(ops::Activation::gelu_tanh, pre, dact, nullptr);
        expect_near(other.gelu().apply_backward_gelu(dy, act, pre, work), wanted, "dpre");
      }
      EXPECT_TRUE(pre.equal(before));
      for (size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(other.layer->params()[i]->grad.equal(one.layer->params()[i]->grad)) << "the same products and sums";
      EXPECT_GT(one.layer->params()[0]->grad.abs().max().item<float>(), 0);
    }
}

// Rows with gaps, of larger tensors, and parameters that begin anywhere: each asks for a kernel of its alignment.
TEST_F(GeluLinear, takes_rows_and_weights_of_larger_tensors) {
  const at::Tensor w = numbers({50, 24}, "w", at::kBFloat16), x = numbers({9, 64}, "x", at::kBFloat16).narrow(1, 3, 24);
  const at::Tensor b = numbers({60}, "b", at::kBFloat16);
  for (const int64_t first : {0, 1, 3, 10}) {
    const at::Tensor weight = w.narrow(0, first, 40), bias = b.narrow(0, first, 40);
    at::Tensor pre;
    EXPECT_TRUE(gelu_product_found(weight, bias, 9, false));
    gelu_product(x, weight, bias, pre);
    expect_near(pre, product(x.contiguous(), weight, bias), "pre");
  }
}

TEST_F(GeluLinear, is_there_for_sixteen_bits_on_cuda_and_widths_of_eight) {
  const Layer fits(24, 40, at::kBFloat16), odd(24, 36, at::kBFloat16);
  for (const at::ScalarType dtype : kTypes) {
    EXPECT_EQ(gelu_of(*fits.layer, at::kCUDA, dtype), &fits.gelu());
    EXPECT_EQ(gelu_of(*fits.layer, at::kCPU, dtype), nullptr);
    EXPECT_EQ(gelu_of(*odd.layer, at::kCUDA, dtype), nullptr);
  }
  EXPECT_EQ(gelu_of(*fits.layer, at::kCUDA, at::kFloat), nullptr);
  LinearSpec spec;
  spec.name = "fc", spec.in = 24, spec.out = 40, spec.product = std::make_shared<OtherProduct>();
  EXPECT_EQ(gelu_of(*make_plain_layers(nullptr)->linear(spec), at::kCUDA, at::kBFloat16), nullptr);
}

TEST_F(GeluLinear, a_shape_without_a_kernel_ends_with_what_to_do) {
  const at::Tensor x = numbers({11, 24}, "x", at::kHalf), w = numbers({40, 24}, "w", at::kHalf);
  const int64_t before = alive();
  ASSERT_EQ(setenv("STAND_IN_PRODUCTS", "none", 1), 0);
  EXPECT_EQ(problem(x, w),
            "cuBLASLt has no product with GELU of [11, 24] and [24, 40] in Half for this GPU; leave out "
            "\"gelu_fusion\"");
  unsetenv("STAND_IN_PRODUCTS");
  EXPECT_LE(alive(), before) << "it leaves nothing behind";
  EXPECT_EQ(problem(x.narrow(0, 0, 10), w), "");
}

// Most often a kernel before it has failed, which is told as LibTorch's products tell it; else it can be left out.
TEST_F(GeluLinear, a_product_that_is_not_started_has_the_code_and_the_remedy_of_what_cublaslt_says) {
  const at::Tensor x = numbers({13, 24}, "x", at::kHalf), w = numbers({40, 24}, "w", at::kHalf);
  for (const auto& [said, code] : std::map<std::string, ErrorCode>{
           {"status 13", ErrorCode::plugin}, {"status 14", ErrorCode::plugin}, {"status 15", ErrorCode::config}}) {
    ASSERT_EQ(setenv("STAND_IN_PRODUCTS", said.c_str(), 1), 0);
    const std::string id = "strategy/mine";
    try {
      at::Tensor pre;
      plugin_call({id, "forward"}, [&] { gelu_product(x, w, {}, pre); });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      const char* const remedy = code == ErrorCode::plugin ? "CUDA_LAUNCH_BLOCKING" : "leave out \"gelu_fusion\"";
      EXPECT_NE(std::string(e.what()).find(remedy), std::string::npos) << e.what();
    }
  }
  unsetenv("STAND_IN_PRODUCTS");
}

// Whoever chose by the answer what to keep for backward needs the same one then.
TEST_F(GeluLinear, tells_whether_there_is_a_kernel_and_says_the_same_ever_after) {
  const Layer fc(24, 40, at::kBFloat16), proj(40, 24, at::kBFloat16);
  const at::Tensor dy = numbers({23, 24}, "dy", at::kBFloat16), act = numbers({23, 40}, "act", at::kBFloat16);
  const int64_t before = alive();
  ASSERT_EQ(setenv("STAND_IN_PRODUCTS", "none", 1), 0);
  EXPECT_FALSE(fc.gelu().finds_gelu(22, false));
  ASSERT_EQ(setenv("STAND_IN_PRODUCTS", "forward", 1), 0);
  EXPECT_FALSE(proj.gelu().finds_gelu(23, true));
  EXPECT_LE(alive(), before) << "it leaves nothing behind";
  EXPECT_TRUE(fc.gelu().finds_gelu(23, false));
  unsetenv("STAND_IN_PRODUCTS");
  EXPECT_FALSE(fc.gelu().finds_gelu(22, false));
  EXPECT_FALSE(proj.gelu().finds_gelu(23, true));
  EXPECT_TRUE(proj.gelu().finds_gelu(22, true));
  ASSERT_EQ(setenv("STAND_IN_PRODUCTS", "none", 1), 0);
  EXPECT_TRUE(fc.gelu().finds_gelu(23, false));
  unsetenv("STAND_IN_PRODUCTS");
}

// Of weights and biases it knows how they are aligned, of the rest the least that blocks give.
TEST_F(GeluLinear, what_is_found_can_be_called_where_kernels_want_aligned_operands) {
  ASSERT_EQ(setenv("STAND_IN_PRODUCTS", "aligned", 1), 0);
  const at::Tensor w = numbers({24, 40}, "w", at::kBFloat16), b = numbers({33}, "b", at::kBFloat16);
  const at::Tensor x = numbers({10, 40}, "x", at::kBFloat16).narrow(0, 1, 9);
  EXPECT_FALSE(gelu_product_found(w, b.narrow(0, 1, 24), 9, false));
  EXPECT_TRUE(gelu_product_found(w, b.narrow(0, 8, 24), 9, false));
  at::Tensor pre;
  gelu_product(x, w, b.narrow(0, 8, 24), pre);
  expect_near(pre, product(x, w, b.narrow(0, 8, 24)), "pre");
  unsetenv("STAND_IN_PRODUCTS");
}

// Texts that grow have other rows each time.
TEST_F(GeluLinear, keeps_descriptors_of_some_shapes_only) {
  const at::Tensor w = numbers({8, 8}, "w", at::kBFloat16);
  for (int64_t rows = 1; rows <= 80; ++rows) {
    const at::Tensor x = numbers({rows, 8}, "x", at::kBFloat16);
    at::Tensor pre;
    gelu_product(x, w, {}, pre);
    expect_near(pre, product(x, w), "pre");
    ASSERT_LE(alive(), 64 * 4) << "a descriptor and three layouts each";
  }
}

// In a process that has asked for nothing yet.
TEST_F(GeluLinear, a_cublaslt_that_does_not_start_is_told_with_what_to_do) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto say = [] {
    const at::Tensor x = numbers({11, 24}, "x", at::kHalf), w = numbers({40, 24}, "w", at::kHalf);
    std::fputs(problem(x, w).c_str(), stderr);
    std::_Exit(1);
  };
  ASSERT_EQ(setenv("STAND_IN_PRODUCTS", "no handle", 1), 0);
  EXPECT_DEATH(say(),
               "products with GELU want cuBLASLt, which does not start on this GPU .cublasLtCreate.; leave out "
               "\"gelu_fusion\"");
  unsetenv("STAND_IN_PRODUCTS");
}

}  // namespace
}  // namespace drivetrain
