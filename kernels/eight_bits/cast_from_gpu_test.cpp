// Casts that compute what they cast: the bits of the kernel that writes it in bfloat16 and of a cast of that.
#include "kernels/eight_bits/cast_from.h"

#include <memory>

#include "kernels/common/device_test.h"
#include "kernels/eight_bits/eight_bits.h"
#include "kernels/eight_bits/eight_bits_blocks.h"
#include "kernels/norm/norm.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class CastFromOnGpu : public DeviceTest {};

constexpr Dtype kType = Dtype::bf16;
constexpr Activation kActivations[] = {Activation::gelu_tanh,  Activation::gelu,   Activation::silu,
                                       Activation::relu,       Activation::swiglu, Activation::geglu,
                                       Activation::geglu_tanh, Activation::reglu};
// Rows and columns of what is cast: whole tiles, ragged ones, halves that are whole tiles of either cast, few.
constexpr int64_t kSizes[][2] = {{128, 256}, {130, 144}, {3, 16}, {260, 128}};

// What is cast, as it is computed and as numbers that are there already.
struct Case {
  Case(std::string name, int64_t n, int64_t k) : name(std::move(name)), n(n), k(k) {}
  std::string name;
  int64_t n, k;
  std::vector<std::shared_ptr<Memory>> given;
  const void* x = nullptr;
  CastFrom from;
  std::shared_ptr<Numbers> there;
  bool e5m2 = false;

  const void* add(const std::vector<double>& values) {
    given.push_back(std::make_shared<Numbers>(kType, values));
    return given.back()->data();
  }
  float* add_floats(int64_t count) {
    const auto memory = std::make_shared<Array<float>>(std::vector<float>(static_cast<size_t>(count)));
    given.push_back(memory);
    return memory->as<float>();
  }
};

Case activation_case(int64_t n, int64_t k, Activation kind, bool with_bias) {
  Case c("activation", n, k);
  const int64_t wide = is_gated(kind) ? 2 * k : k;
  c.x = c.add(random_values(n * wide, 3, 2));
  c.from.kind = CastFrom::Kind::activation, c.from.activation = kind;
  if (with_bias) c.from.bias = c.add(random_values(wide, 4));
  c.there = std::make_shared<Numbers>(kType, n * k);
  ActivationForward op{c.x, c.from.bias, c.there->data(), n, k, kind, kType};
  EXPECT_EQ(activation_forward_cuda(op, nullptr), 0);
  return c;
}

Case gradient_case(int64_t n, int64_t k, Activation kind, bool with_bias, bool e5m2) {
  Case c("gradient", n, k);
  const int64_t F = is_gated(kind) ? k / 2 : k;
  c.e5m2 = e5m2;
  c.x = c.add(random_values(n * k, 3, 2));
  c.from.kind = CastFrom::Kind::activation_backward, c.from.activation = kind,
  c.from.dy = c.add(random_values(n * F, 5));
  if (with_bias) c.from.bias = c.add(random_values(k, 4));
  c.there = std::make_shared<Numbers>(kType, n * k);
  ActivationBackward op{c.x, c.from.bias, c.from.dy, c.there->data(), nullptr, n, F, kind, kType};
  EXPECT_EQ(activation_backward_cuda(op, nullptr), 0);
  return c;
}

Case norm_case(int64_t n, int64_t k, bool rms, bool with_bias, float offset) {
  Case c(rms ? "rms norm" : "layer norm", n, k);
  const void* const x = c.add(random_values(n * k, 3, 2));
  const void* const delta = c.add(random_values(n * k, 6));
  const auto sum = std::make_shared<Numbers>(kType, n * k);
  c.given.push_back(sum);
  c.x = sum->data(), c.from.kind = CastFrom::Kind::norm, c.from.offset = offset;
  c.from.weight = c.add(random_values(k, 7));
  if (with_bias) c.from.bias = c.add(random_values(k, 8));
  float* const mean = rms ? nullptr : c.add_floats(n);
  float* const rstd = c.add_floats(n);
  c.from.mean = mean, c.from.rstd = rstd;
  c.there = std::make_shared<Numbers>(kType, n * k);
  NormForward op{.x = x, .delta = delta, .weight = c.from.weight, .bias = c.from.bias, .sum = sum->data()};
  op.y = c.there->data(), op.mean = mean, op.rstd = rstd, op.rows = n, op.columns = k;
  op.rms = rms, op.dtype = kType, op.offset = offset;
  EXPECT_EQ(norm_forward_cuda(op, nullptr), 0);
  // Without y the rest is as it was.
  const std::vector<char> sums = sum->bytes(), rstds = c.given.back()->bytes();
  op.y = nullptr;
  EXPECT_EQ(norm_forward_cuda(op, nullptr), 0);
  EXPECT_TRUE(sums == sum->bytes() && rstds == c.given.back()->bytes());
  return c;
}

std::vector<Case> cases(int64_t n, int64_t k) {
  std::vector<Case> all;
  for (const Activation kind : kActivations)
    for (const bool with_bias : {false, true}) {
      all.push_back(activation_case(n, k, kind, with_bias));
      all.push_back(gradient_case(n, k, kind, with_bias, with_bias));
    }
  for (const bool rms : {false, true})
    for (const bool with_bias : {false, true}) all.push_back(norm_case(n, k, rms, with_bias, with_bias ? 1.0F : 0.0F));
  return all;
}

using Bytes = std::vector<std::vector<char>>;

float maximum_of(const Case& c, const void* x, const CastFrom& from, float unless) {
  Array<float> maxima(std::vector<float>(static_cast<size_t>(kMostMaxima))), most({-1.0F}), other({unless});
  AbsoluteMaximum op{x, maxima.as<float>(), most.as<float>(), c.n * c.k, kType};
  op.unless = other.as<float>(), op.from = from, op.k = c.k;
  run_repeatedly({&most}, [&](void* stream) { return absolute_maximum_cuda(op, stream); });
  return most.now()[0];
}

Bytes cast_tiles_of(const Case& c, const void* x, const CastFrom& from) {
  const int64_t padded = blocks_of(c.n, 16) * 16;
  Array<float> scale({1.7F}), most({-1.0F});
  Array<uint8_t> rows(std::vector<uint8_t>(static_cast<size_t>(c.n * c.k), 0xa5)),
      columns(std::vector<uint8_t>(static_cast<size_t>(c.k * padded), 0xa5));
  EightBits op;
  op.x = x, op.from = from, op.n = c.n, op.k = c.k, op.padded = padded, op.e5m2 = c.e5m2, op.dtype = kType;
  op.scale = scale.as<float>(), op.rows = rows.as<uint8_t>(), op.columns = columns.as<uint8_t>();
  Array<float> parts(std::vector<float>(static_cast<size_t>(eight_bits_parts(op)), -1.0F));
  op.maxima = parts.as<float>(), op.out = most.as<float>();
  run_repeatedly({&rows, &columns, &most}, [&](void* stream) { return eight_bits_cuda(op, stream); });
  EXPECT_EQ(most.now()[0], maximum_of(c, x, from, 0));
  return {rows.bytes(), columns.bytes(), most.bytes()};
}

Bytes cast_blocks_of(const Case& c, const void* x, const CastFrom& from) {
  const auto room = [](int64_t R, int64_t S) {
    return Array<uint8_t>(std::vector<uint8_t>(static_cast<size_t>(rounded_up(R, 16) * rounded_up(S, 128)), 0xa5));
  };
  const auto scales = [](int64_t R, int64_t S) {
    return Array<float>(std::vector<float>(static_cast<size_t>(rounded_up(R, 16) * blocks_of(S, 128)), -7));
  };
  auto rows = room(c.n, c.k), columns = room(c.k, c.n);
  auto row_scales = scales(c.n, c.k), column_scales = scales(c.k, c.n);
  EightBitsBlocks op;
  op.x = x, op.from = from, op.n = c.n, op.k = c.k, op.dtype = kType;
  op.rows = rows.as<uint8_t>(), op.row_inverses = row_scales.as<float>();
  op.columns = columns.as<uint8_t>(), op.column_inverses = column_scales.as<float>();
  run_repeatedly({&rows, &columns, &row_scales, &column_scales},
                 [&](void* stream) { return eight_bits_blocks_cuda(op, stream); });
  return {rows.bytes(), columns.bytes(), row_scales.bytes(), column_scales.bytes()};
}

TEST_F(CastFromOnGpu, numbers_that_are_computed_in_the_cast_have_the_bits_of_two_passes) {
  const bool blocks = eight_bits_blocks_cuda({}, nullptr) != kNoProductsOfBlocks;  // not before sm_90
  for (const auto& [n, k] : kSizes)
    for (const Case& c : cases(n, k)) {
      SCOPED_TRACE(testing::Message() << c.name << " " << static_cast<int>(c.from.activation) << " " << n << " x " << k
                                      << (c.from.bias ? " bias" : ""));
      ASSERT_TRUE(cast_from_fits(c.from, k, kType));
      EXPECT_TRUE(cast_tiles_of(c, c.x, c.from) == cast_tiles_of(c, c.there->data(), {}));
      if (!blocks) continue;
      EXPECT_TRUE(cast_blocks_of(c, c.x, c.from) == cast_blocks_of(c, c.there->data(), {}));
    }
}

// Nothing is read there: there is no x.
TEST_F(CastFromOnGpu, a_largest_value_that_nobody_needs_is_not_looked_for) {
  const Case c = activation_case(130, 144, Activation::swiglu, false);
  EXPECT_EQ(maximum_of(c, nullptr, c.from, 3), 0);
}

TEST_F(CastFromOnGpu, what_it_cannot_compute_is_refused) {
  Case c = activation_case(16, 24, Activation::silu, false);
  Array<float> scale({1.0F});
  Array<uint8_t> rows(std::vector<uint8_t>(16 * 24));
  EightBits op;
  op.x = c.x, op.from = c.from, op.n = 16, op.k = 24, op.scale = scale.as<float>(), op.rows = rows.as<uint8_t>();
  for (const Dtype dtype : kDtypes) {
    op.dtype = dtype;
    EXPECT_EQ(cast_from_fits(op.from, op.k, dtype), dtype == kType);
    EXPECT_EQ(eight_bits_cuda(op, nullptr) == 0, dtype == kType);
  }
  op.dtype = kType, op.k = 20;
  EXPECT_FALSE(cast_from_fits(op.from, op.k, kType));
  EXPECT_NE(eight_bits_cuda(op, nullptr), 0);
  op.k = 24, op.e5m2 = true;
  EXPECT_NE(eight_bits_cuda(op, nullptr), 0);
  op.e5m2 = false;
  op.from.kind = CastFrom::Kind::activation_backward, op.from.activation = Activation::swiglu;
  EXPECT_FALSE(cast_from_fits(op.from, 24, kType));  // a half of it is 12
  EXPECT_TRUE(cast_from_fits(op.from, 32, kType));
}

}  // namespace
}  // namespace drivetrain::kernels
