// Products with GELU in their epilogue against float64. On a GPU by cuBLASLt; everywhere else by a stand-in that reads
// what it is asked for (tests/nvidia_stand_ins/matrix_products.cpp).
#include "kernels/common/device_test.h"
#include "kernels/product/gelu_product.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class GeluProductOnGpu : public DeviceTest {};

constexpr double kLine = 0.7978845608028654, kCube = 0.044715;  // sqrt(2 / pi)
double tanh_of(double x) { return std::tanh(kLine * (x + kCube * x * x * x)); }
double gelu(double x) { return 0.5 * x * (1 + tanh_of(x)); }
double slope(double x) {
  const double step = 1e-5;  // central difference: error of 1e-10
  return (gelu(x + step) - gelu(x - step)) / (2 * step);
}
// What an error of t = tanh(u) becomes in the slope, 0.5 (1 + t) + 0.5 x (1 - t^2) u': so many times as much, 5 at
// |x| = 3.
double slope_per_tanh(double x) { return std::abs(0.5 - x * tanh_of(x) * kLine * (1 + 3 * kCube * x * x)); }

// `skip` spoils the alignment of operands that are not cuBLASLt's own: 8 elements are 16 bytes.
struct Case {
  int64_t n, k, m, skip;
  bool bias;
};
// Some differ in one thing, for which a kernel of its own is asked.
constexpr Case kCases[] = {{1, 8, 8, 0, true},    {37, 64, 24, 0, true},    {38, 64, 24, 0, true},
                           {37, 64, 24, 8, true}, {130, 40, 136, 0, false}, {64, 128, 64, 8, false},
                           {0, 8, 8, 0, true}};

template <class Body>
void for_all_cases(Body body) {
  for (const Case& c : kCases)
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      SCOPED_TRACE(testing::Message() << c.n << " x " << c.k << " to " << c.m << " dtype " << static_cast<int>(dtype));
      body(c, dtype);
    }
}

size_t at(int64_t i) { return static_cast<size_t>(i); }

// cuBLASLt's tanh may be the hardware's, which is off by as much.
constexpr double kTanh = 0x1p-11;

TEST_F(GeluProductOnGpu, forward_equals_float64) {
  for_all_cases([](const Case& c, Dtype dtype) {
    Numbers x(dtype, random_values(c.n * c.k, 1), c.skip), weight(dtype, random_values(c.m * c.k, 2, 0.5), c.skip);
    Numbers bias(dtype, random_values(c.m, 3)), pre(dtype, c.n * c.m), out(dtype, c.n * c.m);
    Array<char> workspace{std::vector<char>(at(kGeluProductWorkspace))};
    GeluProduct op;
    op.x = x.data(), op.weight = weight.data(), op.bias = c.bias ? bias.data() : nullptr, op.pre = pre.data();
    op.out = out.data(), op.workspace = workspace.data(), op.n = c.n, op.k = c.k, op.m = c.m, op.dtype = dtype;
    GeluProduct asks = op;
    asks.x = asks.pre = asks.out = nullptr;
    EXPECT_EQ(gelu_product_cuda(asks, nullptr), 0);
    run_repeatedly({&pre, &out}, [&](void* stream) { return gelu_product_cuda(op, stream); });

    const std::vector<double> X = x.first(), W = weight.first(), b = bias.first();
    std::vector<double> wanted_pre, wanted;
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t m = 0; m < c.m; ++m) {
        double sum = c.bias ? b[at(m)] : 0;
        for (int64_t k = 0; k < c.k; ++k) sum += X[at(n * c.k + k)] * W[at(m * c.k + k)];
        wanted_pre.push_back(sum), wanted.push_back(gelu(sum));
      }
    expect_close(pre.now(), wanted_pre, rounding(dtype), 1e-5, "pre");
    expect_close(out.now(), wanted, rounding(dtype) + kTanh, 4 * kTanh, "out");
  });
}

// Two roundings: an H200 rounds the sum to 16 bits before it multiplies it with the slope. (In bfloat16 the first
// number of each shape that was beyond one rounding was to the bit what that gives; no error of tanh gives it where |x|
// is 0.8, since the slope hardly depends on tanh there.) And an error of tanh as often as the slope has it.
TEST_F(GeluProductOnGpu, backward_equals_float64) {
  for_all_cases([](const Case& c, Dtype dtype) {
    Numbers dy(dtype, random_values(c.n * c.k, 1), c.skip), weight(dtype, random_values(c.k * c.m, 2, 0.5), c.skip);
    Numbers pre(dtype, random_values(c.n * c.m, 3, 3)), out(dtype, c.n * c.m);
    Array<char> workspace{std::vector<char>(at(kGeluProductWorkspace))};
    GeluProduct op;
    op.x = dy.data(), op.weight = weight.data(), op.pre = pre.data(), op.out = out.data(), op.backward = true;
    op.workspace = workspace.data(), op.n = c.n, op.k = c.k, op.m = c.m, op.dtype = dtype;
    GeluProduct asks = op;
    asks.x = asks.pre = asks.out = nullptr;
    EXPECT_EQ(gelu_product_cuda(asks, nullptr), 0);
    run_repeatedly({&out}, [&](void* stream) { return gelu_product_cuda(op, stream); });

    const std::vector<double> DY = dy.first(), W = weight.first(), p = pre.first();
    const std::vector<double> found = out.now();
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t m = 0; m < c.m; ++m) {
        double sum = 0;
        for (int64_t k = 0; k < c.k; ++k) sum += DY[at(n * c.k + k)] * W[at(k * c.m + m)];
        const double x = p[at(n * c.m + m)], wanted = sum * slope(x),
                     allowed =
                         2 * rounding(dtype) * std::abs(wanted) + std::abs(sum) * slope_per_tanh(x) * kTanh + 1e-5;
        ASSERT_NEAR(found[at(n * c.m + m)], wanted, allowed) << "row " << n << " column " << m;
      }
    EXPECT_EQ(pre.now(), p) << "it is read";
  });
}

TEST_F(GeluProductOnGpu, calls_of_one_shape_have_operands_of_their_own) {
  Numbers x(Dtype::bf16, std::vector<double>(64)), weight(Dtype::bf16, std::vector<double>(64));
  Array<char> workspace{std::vector<char>(at(kGeluProductWorkspace))};
  Numbers one(Dtype::bf16, std::vector<double>(8, 1)), two(Dtype::bf16, std::vector<double>(8, 2));
  Numbers pre_one(Dtype::bf16, 64), pre_two(Dtype::bf16, 64), out(Dtype::bf16, 64);
  const auto run = [&](Numbers& bias, Numbers& pre) {
    GeluProduct op;
    op.x = x.data(), op.weight = weight.data(), op.bias = bias.data(), op.pre = pre.data(), op.out = out.data();
    op.workspace = workspace.data(), op.n = op.k = op.m = 8;
    ASSERT_EQ(gelu_product_cuda(op, nullptr), 0);
  };
  run(one, pre_one), run(two, pre_two);
  EXPECT_EQ(pre_one.now(), std::vector<double>(64, 1));
  EXPECT_EQ(pre_two.now(), std::vector<double>(64, 2));
}

// Rows of `pre` have to lie a multiple of 8 elements apart; callers ask first.
TEST_F(GeluProductOnGpu, other_sizes_and_types_do_not_fit_and_are_refused) {
  EXPECT_TRUE(gelu_product_fits(Dtype::bf16, 64, 72));
  const auto refused = [](Dtype dtype, int64_t k, int64_t m) {
    GeluProduct op;
    op.n = 1, op.k = k, op.m = m, op.dtype = dtype;
    return !gelu_product_fits(dtype, k, m) && gelu_product_cuda(op, nullptr) == cudaErrorInvalidValue;
  };
  EXPECT_TRUE(refused(Dtype::f32, 64, 64));
  EXPECT_TRUE(refused(Dtype::bf16, 64, 68));
  EXPECT_TRUE(refused(Dtype::f16, 60, 64));
}

}  // namespace
}  // namespace drivetrain::kernels
