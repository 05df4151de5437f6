// The cast to 8 bits and products of such operands, against their definition in float64.
#include <ATen/ops/equal.h>

#include <cmath>

#include "test_numbers.h"

namespace drivetrain::test {
namespace {

TEST(Fp8Cast, rounds_to_nearest_even_and_clamps) {
  for (const at::ScalarType type : kTypes) {
    const std::vector<double> list = all_numbers(type);
    EXPECT_EQ(list.back(), largest(type));
    std::vector<float> given;
    for (size_t i = 0; i < list.size(); ++i) {
      given.push_back(static_cast<float>(list[i]));
      if (i + 1 == list.size()) break;
      const auto middle = static_cast<float>((list[i] + list[i + 1]) / 2);
      for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)}) given.push_back(x);
    }
    for (const double x : {1.5 * largest(type), 1e9, 1e-9}) given.push_back(static_cast<float>(x));
    const size_t count = given.size();
    for (size_t i = 0; i < count; ++i) given.push_back(-given[i]);
    at::Tensor x = at::empty({static_cast<int64_t>(given.size())});
    std::copy(given.begin(), given.end(), x.mutable_data_ptr<float>());
    const at::Tensor found = fp8::cast(x, scalar(1), type).values.to(at::kFloat);
    for (size_t i = 0; i < given.size(); ++i)
      EXPECT_EQ(found[static_cast<int64_t>(i)].item<double>(), rounded(given[i], list)) << given[i];
  }
}

TEST(Fp8Cast, leaves_its_input_alone) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = numbers({16}, 1).to(type), before = x.clone();
    fp8::cast(x, scalar(3), at::kFloat8_e5m2);
    EXPECT_TRUE(at::equal(x, before));
  }
}

TEST(Fp8Cast, scales_before_it_rounds_and_keeps_what_undoes_it) {
  const Scaled s = fp8::cast(at::full({4}, 3.0).to(at::kBFloat16), scalar(0.25), at::kFloat8_e4m3fn);
  EXPECT_EQ(s.values.to(at::kFloat)[3].item<double>(), 0.75);
  EXPECT_EQ(s.inverse.item<double>(), 4);
}

TEST(Fp8Product, is_that_of_the_rounded_operands) {
  for (const at::ScalarType of_a : kTypes)
    for (const at::ScalarType out : {at::kFloat, at::kBFloat16}) {
      const Scaled a = fp8::cast(numbers({40, 64}, 1), scalar(37.0), of_a),
                   b = fp8::cast(numbers({48, 64}, 2, 0.02), scalar(1234.5), at::kFloat8_e4m3fn);
      const double rounding = out == at::kFloat ? 0x1p-23 : 0x1p-8;
      const at::Tensor bias = numbers({48}, 3).to(out);
      for (const at::Tensor& added : {at::Tensor(), bias}) {
        const at::Tensor y = fp8::product(a, b, out, Sums::precise, added);
        EXPECT_EQ(y.scalar_type(), out);
        expect_product(y, a, b, added, rounding);
      }
    }
}

TEST(Fp8Product, a_transposed_operand_is_padded_with_zeros) {
  const Scaled a = fp8::cast(numbers({40, 32}, 1), scalar(8.0), at::kFloat8_e4m3fn), t = transposed(a);
  ASSERT_EQ(t.values.sizes(), (std::vector<int64_t>{32, 48}));
  EXPECT_TRUE(t.values.is_contiguous());
  EXPECT_TRUE(at::equal(t.values.to(at::kFloat).narrow(1, 0, 40), a.values.to(at::kFloat).t()));
  EXPECT_EQ(t.values.to(at::kFloat).narrow(1, 40, 8).abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace drivetrain::test
