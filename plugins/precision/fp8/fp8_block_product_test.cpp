// Products of operands as they lie on CUDA, without a GPU: a stand-in for at::_scaled_mm_v2 on the CPU checks what
// PyTorch checks, and finds scales in memory where NVIDIA's documentation of cuBLAS says that they are.
#include <ATen/BlasBackend.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "blocks.h"
#include "test_numbers.h"

namespace drivetrain::test {
namespace {

using Kind = at::blas::ScalingType;

int calls = 0;

void want(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("_scaled_mm_v2: ") + what);
}

// 1 / scale for each number of an operand [R, K], from the memory that its scales are in.
at::Tensor each_scale(const at::Tensor& scale, int64_t kind, int64_t R, int64_t K) {
  const int64_t blocks = (K + 127) / 128, in_four = (blocks + 3) / 4 * 4;
  const bool square = kind == static_cast<int64_t>(Kind::BlockWise128x128);
  want(square || kind == static_cast<int64_t>(Kind::BlockWise1x128), "neither kind of blocks");
  want(scale.scalar_type() == at::kFloat, "scales are float32");
  const std::vector<int64_t> shape =
      square ? std::vector<int64_t>{in_four, (R + 127) / 128} : std::vector<int64_t>{R, blocks};
  want(scale.sizes() == shape && scale.stride(0) == 1 && scale.stride(1) == shape[0], "shape or strides of scales");
  const float* const at_first = scale.const_data_ptr<float>();
  at::Tensor each = at::zeros({R, K}, at::TensorOptions(at::kDouble));
  for (int64_t row = 0; row < R; ++row)
    for (int64_t k = 0; k < K; ++k)
      each.mutable_data_ptr<double>()[row * K + k] =
          static_cast<double>(square ? at_first[row / 128 * in_four + k / 128] : at_first[k / 128 * R + row]);
  return each;
}

at::Tensor stand_in(const at::Tensor& a, const at::Tensor& b, at::TensorList scale_a, at::IntArrayRef kind_a,
                    at::IntArrayRef, at::TensorList scale_b, at::IntArrayRef kind_b, at::IntArrayRef,
                    const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out, at::IntArrayRef,
                    bool fast) {
  ++calls;
  want(!fast, "fast sums with scales of blocks");
  want(a.is_contiguous() && b.t().is_contiguous(), "rows by columns alone");
  want(a.scalar_type() == at::kFloat8_e4m3fn && b.scalar_type() == at::kFloat8_e4m3fn, "e4m3 alone");
  const int64_t N = a.size(0), K = a.size(1), M = b.size(1);
  want(N % 4 == 0 && K % 16 == 0 && M % 16 == 0, "sizes");
  want(!(kind_a[0] == kind_b[0] && kind_a[0] == static_cast<int64_t>(Kind::BlockWise128x128)), "two of squares");
  want(!bias || (*out == at::kBFloat16 && bias->scalar_type() == at::kBFloat16),
       "a bias beside another type than bf16");
  const auto wide = [&](const at::Tensor& t, const at::Tensor& scale, int64_t kind) {
    return t.to(at::kDouble) * each_scale(scale, kind, t.size(0), t.size(1));
  };
  at::Tensor y = wide(a, scale_a[0], kind_a[0]).matmul(wide(b.t(), scale_b[0], kind_b[0]).t());
  return (bias ? y + *bias : y).to(*out);
}

// A cast of the CPU as the kernel lays it.
Scaled laid(const Scaled& cast) {
  const int64_t R = cast.values.size(0), S = cast.values.size(1);
  Scaled t = block_room(R, S, cast.block_rows, cast.values.options());
  t.values.view(at::kByte).zero_().narrow(0, 0, R).narrow(1, 0, S).copy_(cast.values.view(at::kByte));
  t.inverse.fill_(1).narrow(0, 0, cast.inverse.size(0)).narrow(1, 0, cast.inverse.size(1)).copy_(cast.inverse);
  return t;
}

// Every block has another size, so that a scale of another one shows.
at::Tensor of_many_sizes(int64_t N, int64_t K, uint64_t seed) {
  at::Tensor x = numbers({N, K}, seed);
  for (int64_t i = 0; i < N; i += 50)
    for (int64_t k = 0; k < K; k += 128)
      x.narrow(0, i, std::min<int64_t>(50, N - i))
          .narrow(1, k, std::min<int64_t>(128, K - k))
          .mul_(std::ldexp(1, static_cast<int>((i / 50 + 3 * k / 128) % 7)));
  return x.to(at::kBFloat16);
}

TEST(Fp8BlockProduct, hands_the_library_operands_and_scales_where_it_looks_for_them) {
  const auto registered = c10::Dispatcher::singleton().registerImpl(
      c10::OperatorName("aten::_scaled_mm_v2", ""), c10::DispatchKey::CPU,
      c10::KernelFunction::makeFromUnboxedRuntimeFunction(&stand_in), std::nullopt, nullptr, "stand-in of a test");
  calls = 0;
  for (const auto& [N, K, M] : {std::tuple<int64_t, int64_t, int64_t>{100, 640, 208}, {16, 128, 16}, {300, 272, 144}})
    for (const int64_t tall : {int64_t{1}, kBlock}) {
      SCOPED_TRACE(testing::Message() << N << " " << K << " " << M << " tall " << tall);
      const Scaled a = cast_blocks(of_many_sizes(N, K, 1), 1), b = cast_blocks(of_many_sizes(M, K, 2), tall);
      const auto near = [](const at::Tensor& found, const at::Tensor& wanted) {
        ASSERT_EQ(found.sizes(), wanted.sizes());
        ASSERT_EQ(found.scalar_type(), wanted.scalar_type());
        const double size = wanted.abs().max().item<double>();
        EXPECT_TRUE(at::allclose(found.to(at::kDouble), wanted.to(at::kDouble), 0x1p-7, 1e-6 * size));
      };
      const at::Tensor bias = numbers({M}, 3).to(at::kBFloat16);
      near(block_product(laid(a), laid(b), at::kFloat, {}), block_product(a, b, at::kFloat, {}));
      near(block_product(laid(a), laid(b), at::kBFloat16, bias), block_product(a, b, at::kBFloat16, bias));
    }
  EXPECT_EQ(calls, 3 * 2 * 2);
}

}  // namespace
}  // namespace drivetrain::test
