// Every 16-bit number, every midpoint between two neighbours and the numbers beside it.
#include "kernels/common/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace drivetrain::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float bf16_value(uint16_t bits) { return widened(Bf16{bits}); }

// From the definition of the format: 5 bits of exponent, 10 of mantissa, no infinities here.
float f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>((bits & 0x8000) ? -size : size);
}

// `value` gives the number of every bit pattern below `infinity`, and `round` is under test.
template <class Value, class Round>
void check_all(uint16_t infinity, float after_last, const Value& value, const Round& round) {
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const float here = value(bits), next = bits + 1 < infinity ? value(bits + 1) : after_last;
    const float middle = static_cast<float>((static_cast<double>(here) + static_cast<double>(next)) / 2);
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const uint32_t sign : {0U, 0x8000U}) {
      const float s = sign ? -1.0F : 1.0F;
      ASSERT_EQ(round(s * here), bits | sign) << here;
      ASSERT_EQ(round(s * middle), even | sign) << here;
      ASSERT_EQ(round(s * std::nextafter(middle, 0.0F)), bits | sign) << here;
      ASSERT_EQ(round(s * std::nextafter(middle, kInfinity)), (bits + 1) | sign) << here;
    }
  }
}

TEST(Narrow, float16_is_the_nearest_number_and_the_even_one_of_two) { check_all(0x7C00, 65536.0F, f16_value, to_f16); }

TEST(Narrow, bfloat16_is_the_nearest_number_and_the_even_one_of_two) {
  // The midpoint after the last number is the largest float32 of all but one bit; it is looked at below.
  check_all(0x7F7F, bf16_value(0x7F7F), bf16_value, to_bf16);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(Narrow, widened_float16_is_the_number_its_bits_say) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits)
    for (const uint32_t sign : {0U, 0x8000U}) {
      const auto pattern = static_cast<uint16_t>(bits | sign);
      ASSERT_EQ(std::bit_cast<uint32_t>(widened(F16{pattern})), std::bit_cast<uint32_t>(f16_value(pattern))) << pattern;
    }
  EXPECT_EQ(widened(F16{0x7C00}), kInfinity);
  EXPECT_EQ(widened(F16{0xFC00}), -kInfinity);
  EXPECT_TRUE(std::isnan(widened(F16{0x7E00})) && std::isnan(widened(F16{0xFC01})));
}

TEST(Narrow, infinity_and_nan_stay_what_they_are) {
  EXPECT_EQ(to_bf16(kInfinity), 0x7F80);
  EXPECT_EQ(to_bf16(-kInfinity), 0xFF80);
  EXPECT_EQ(to_f16(kInfinity), 0x7C00);
  EXPECT_EQ(to_f16(-kInfinity), 0xFC00);
  EXPECT_EQ(to_f16(1e30F), 0x7C00);
  for (const uint32_t bits : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(widened(Bf16{to_bf16(nan)})));
    EXPECT_GT(to_f16(nan) & 0x7FFF, 0x7C00);
  }
}

}  // namespace
}  // namespace drivetrain::kernels
