// Sums over ranks against the tree written down recursively, bit by bit, for every type, number of ranks and cut.
#include "kernels/collective/tree_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/common/narrow.h"

namespace drivetrain::kernels {
namespace {

// Values whose sum depends on the order of additions.
float uneven(int64_t rank, int64_t i) {
  const uint64_t bits = static_cast<uint64_t>(rank * 1000003 + i + 1) * 0x9e3779b97f4a7c15U;
  return static_cast<float>(static_cast<int64_t>(bits)) * std::exp2(static_cast<float>(bits >> 60) - 70.0F);
}

template <class A, class Value>
A tree(int64_t first, int64_t ranks, const Value& value) {
  if (ranks == 1) return value(first);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(ranks - 1)));
  return static_cast<A>(tree<A>(first, left, value) + tree<A>(first + left, ranks - left, value));
}

template <class T, class A, class Make, class Round>
void expect_the_tree(SumType type, const Make& make, const Round& round) {
  constexpr int64_t n = 1301;
  for (const int64_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 64, 65}) {
    std::vector<std::vector<T>> data(static_cast<size_t>(ranks), std::vector<T>(n));
    std::vector<const void*> sources;
    for (int64_t r = 0; r < ranks; ++r) {
      for (int64_t i = 0; i < n; ++i) data[r][i] = make(r, i).first;
      sources.push_back(data[r].data());
    }
    std::vector<T> out(n), cut(n);
    TreeSum op{sources.data(), out.data(), ranks, type};
    tree_sum_cpu(op, 0, n);
    op.out = cut.data();
    for (int64_t at = 0; at < n; at += 77) tree_sum_cpu(op, at, std::min<int64_t>(n, at + 77));
    EXPECT_EQ(std::memcmp(out.data(), cut.data(), n * sizeof(T)), 0);
    for (int64_t i = 0; i < n; ++i) {
      const T wanted = round(tree<A>(0, ranks, [&](int64_t r) { return make(r, i).second; }));
      ASSERT_EQ(std::memcmp(&out[i], &wanted, sizeof(T)), 0) << ranks << " ranks, element " << i;
    }
    op.out = data[static_cast<size_t>(ranks) / 2].data();  // into one of the sources, and into another
    op.also = ranks > 1 ? data[0].data() : nullptr;
    tree_sum_cpu(op, 0, n);
    EXPECT_EQ(std::memcmp(op.out, out.data(), n * sizeof(T)), 0) << ranks;
    EXPECT_TRUE(op.also == nullptr || std::memcmp(op.also, out.data(), n * sizeof(T)) == 0) << ranks;
  }
}

template <class T>
void expect_plain(SumType type) {
  const auto make = [](int64_t r, int64_t i) {
    T value = std::is_integral_v<T> ? static_cast<T>(static_cast<uint64_t>(r * 131 + i) * 0x9e3779b97f4a7c15U)
                                    : static_cast<T>(uneven(r, i));
    return std::pair(value, value);
  };
  expect_the_tree<T, T>(type, make, [](T x) { return x; });
}

TEST(TreeSum, floats_and_wrapping_integers_follow_the_tree) {
  expect_plain<float>(SumType::f32);
  expect_plain<double>(SumType::f64);
  expect_plain<uint8_t>(SumType::i8);
  expect_plain<uint16_t>(SumType::i16);
  expect_plain<uint32_t>(SumType::i32);
  expect_plain<uint64_t>(SumType::i64);
}

TEST(TreeSum, bfloat16_is_added_in_float32_and_rounded_once) {
  const auto make = [](int64_t r, int64_t i) {
    const uint16_t bits = to_bf16(uneven(r, i));
    return std::pair(bits, widened(Bf16{bits}));
  };
  expect_the_tree<uint16_t, float>(SumType::bf16, make, to_bf16);
}

// Every sixteenth is subnormal.
TEST(TreeSum, float16_is_added_in_float32_and_rounded_once) {
  const auto make = [](int64_t r, int64_t i) {
    const auto units = static_cast<float>((r * 37 + i * 11) % 1023);
    const float value =
        i % 16 == 0 ? units * 0x1.0p-24F : (1 + units / 1024) * std::exp2(static_cast<float>(i % 20 - 10));
    return std::pair(to_f16(value), value);
  };
  expect_the_tree<uint16_t, float>(SumType::f16, make, to_f16);
}

TEST(TreeSum, what_is_not_finite_stays_so_in_16_bits) {
  for (const SumType type : {SumType::f16, SumType::bf16}) {
    const bool half = type == SumType::f16;
    const uint16_t infinite = half ? 0x7C00 : 0x7F80, nan = half ? 0x7E00 : 0x7FC0, one = half ? 0x3C00 : 0x3F80;
    const uint16_t a[] = {infinite, nan, infinite}, b[] = {one, one, static_cast<uint16_t>(infinite | 0x8000)};
    const void* sources[] = {a, b};
    uint16_t out[3];
    tree_sum_cpu({sources, out, 2, type}, 0, 3);
    EXPECT_EQ(out[0], infinite);
    EXPECT_EQ(out[1] & 0x7FFF, nan);
    EXPECT_EQ(out[2] & 0x7FFF, nan);
  }
}

}  // namespace
}  // namespace drivetrain::kernels
