// Casts to 8 bits against the definition of the formats: every finite number of the type, halves between them, and
// beyond.
#include "kernels/eight_bits/eight_bits.h"

#include <cmath>
#include <limits>

#include "kernels/common/device_test.h"
#include "kernels/eight_bits/eight_bits_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;
using namespace eight_bits_test;

class EightBitsOnGpu : public DeviceTest {};

struct Case {
  int64_t n, k, padded;
  bool rows, columns;
  int64_t skip;
};
constexpr Case kCases[] = {{128, 64, 128, true, true, 0}, {130, 72, 144, true, true, 0},  {3, 45, 16, true, true, 0},
                           {1, 200, 16, false, true, 0},  {300, 64, 304, true, false, 0}, {17, 64, 32, true, true, 1},
                           {0, 64, 16, true, true, 0}};

void cast_case(const Case& c, Dtype dtype, bool e5m2, std::vector<double> values, float by) {
  Numbers x(dtype, values, c.skip);
  Array<float> scale({by});
  Array<uint8_t> rows(std::vector<uint8_t>(static_cast<size_t>(c.n * c.k), 0xa5)),
      columns(std::vector<uint8_t>(static_cast<size_t>(c.k * c.padded), 0xa5));
  EightBits op;
  op.x = x.data(), op.scale = scale.as<float>(), op.n = c.n, op.k = c.k, op.padded = c.padded;
  op.e5m2 = e5m2, op.dtype = dtype;
  if (c.rows) op.rows = rows.as<uint8_t>();
  if (c.columns) op.columns = columns.as<uint8_t>();
  run_repeatedly({&rows, &columns}, [&](void* stream) { return eight_bits_cuda(op, stream); });

  std::vector<double> wanted, turned(static_cast<size_t>(c.k * c.padded));
  for (const double value : x.first())
    wanted.push_back(nearest(static_cast<double>(static_cast<float>(value) * by), e5m2));
  for (int64_t i = 0; i < c.n * c.k; ++i)
    turned[static_cast<size_t>(i % c.k * c.padded + i / c.k)] = wanted[static_cast<size_t>(i)];
  if (c.rows) expect_values(rows.now(), wanted, e5m2, "rows");
  if (c.columns) expect_values(columns.now(), turned, e5m2, "columns");
}

TEST_F(EightBitsOnGpu, casts_round_to_nearest_as_they_lie_and_transposed) {
  for (const Case& c : kCases)
    for (const Dtype dtype : kDtypes)
      for (const bool e5m2 : {false, true}) {
        SCOPED_TRACE(testing::Message() << c.n << " x " << c.k << " dtype " << static_cast<int>(dtype) << " e5m2 "
                                        << e5m2);
        cast_case(c, dtype, e5m2, random_values(c.n * c.k, 3, 500), 1.7F);
      }
}

TEST_F(EightBitsOnGpu, every_number_of_the_type_every_half_between_and_what_is_beyond) {
  for (const bool e5m2 : {false, true}) {
    std::vector<double> values = {0.0, -0.0, kNan, 1e9, -1e9, 1e-9, INFINITY, -INFINITY};
    for (int bits = 0; bits < 0x7f; ++bits) {
      const double here = value_of(static_cast<uint8_t>(bits), e5m2),
                   next = value_of(static_cast<uint8_t>(bits + 1), e5m2);
      if (std::isnan(here)) continue;
      values.push_back(here), values.push_back(-here);
      if (!std::isnan(next)) values.push_back((here + next) / 2), values.push_back(-(here + next) / 2);
    }
    values.resize(512);
    cast_case({8, 64, 16, true, true, 0}, Dtype::f32, e5m2, values, 1.0F);
  }
}

TEST_F(EightBitsOnGpu, a_scale_that_is_no_number_makes_none) {
  cast_case({2, 16, 16, true, false, 0}, Dtype::bf16, false, random_values(32, 1),
            std::numeric_limits<float>::quiet_NaN());
}

// The same pass finds the largest value; what is not finite shows in both.
TEST_F(EightBitsOnGpu, casts_that_find_the_largest_value_hide_nothing) {
  for (const Case& c : kCases)
    for (const double bad : {0.0, kNan, static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
      if (c.n == 0 && bad != 0) continue;
      SCOPED_TRACE(testing::Message() << c.n << " x " << c.k << " bad " << bad);
      std::vector<double> values = random_values(c.n * c.k, 7, 500);
      const size_t place = values.size() / 2;
      if (bad != 0) values[place] = bad;
      Numbers x(Dtype::bf16, values, c.skip);
      Array<float> scale({1.7F}), out({-1.0F});
      Array<uint8_t> rows(std::vector<uint8_t>(static_cast<size_t>(c.n * c.k), 0xa5)),
          columns(std::vector<uint8_t>(static_cast<size_t>(c.k * c.padded), 0xa5));
      EightBits op;
      op.x = x.data(), op.scale = scale.as<float>(), op.n = c.n, op.k = c.k, op.padded = c.padded;
      op.dtype = Dtype::bf16;
      if (c.rows) op.rows = rows.as<uint8_t>();
      if (c.columns) op.columns = columns.as<uint8_t>();
      Array<float> maxima(std::vector<float>(static_cast<size_t>(eight_bits_parts(op)), -1.0F));
      op.maxima = maxima.as<float>(), op.out = out.as<float>();
      run_repeatedly({&rows, &columns, &out}, [&](void* stream) { return eight_bits_cuda(op, stream); });

      double wanted = 0;
      std::vector<double> bytes;
      for (const double value : x.first()) {
        wanted = std::isnan(wanted) || std::isnan(value) ? kNan : std::max(wanted, std::abs(value));
        bytes.push_back(std::isfinite(value) ? nearest(static_cast<double>(static_cast<float>(value) * 1.7F), false)
                                             : kNan);
      }
      const double found = static_cast<double>(out.now()[0]);
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(found) : found == wanted) << found << " wanted " << wanted;
      if (c.rows) expect_values(rows.now(), bytes, false, "rows");
    }
}

TEST_F(EightBitsOnGpu, a_largest_value_that_nobody_needs_is_not_looked_for) {
  for (const float unless : {0.0F, 3.0F}) {
    Numbers x(Dtype::bf16, random_values(5000, 5));
    Array<float> maxima(std::vector<float>(static_cast<size_t>(kMostMaxima))), out({-1.0F}), other({unless});
    AbsoluteMaximum op{x.data(), maxima.as<float>(), out.as<float>(), 5000, Dtype::bf16};
    op.unless = other.as<float>();
    run_repeatedly({&out}, [&](void* stream) { return absolute_maximum_cuda(op, stream); });
    EXPECT_EQ(out.now()[0] == 0, unless > 0);
  }
}

TEST_F(EightBitsOnGpu, absolute_maxima_are_exact_and_keep_what_is_no_number) {
  for (const int64_t n : {0, 1, 7, 4096, 100003})
    for (const Dtype dtype : kDtypes)
      for (const bool with_nan : {false, true}) {
        SCOPED_TRACE(testing::Message() << n << " dtype " << static_cast<int>(dtype) << " nan " << with_nan);
        std::vector<double> values = random_values(n, 5);
        if (with_nan && n > 0) values[static_cast<size_t>(n / 2)] = kNan;
        Numbers x(dtype, values);
        const std::vector<float> zeros(static_cast<size_t>(kMostMaxima));
        Array<float> maxima(zeros), out({-1.0F});
        const AbsoluteMaximum op{x.data(), maxima.as<float>(), out.as<float>(), n, dtype};
        run_repeatedly({&out}, [&](void* stream) { return absolute_maximum_cuda(op, stream); });
        double wanted = 0;
        for (const double value : x.first()) wanted = std::max(wanted, std::abs(value));
        if (with_nan && n > 0)
          EXPECT_TRUE(std::isnan(out.now()[0]));
        else
          EXPECT_EQ(static_cast<double>(out.now()[0]), wanted);
      }
}

}  // namespace
}  // namespace drivetrain::kernels
