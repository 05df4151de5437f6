// Kernels on 16 bits compute as on float32 and round what they store once: with inputs that both types hold, their
// results are those of float32, rounded.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/common/narrow.h"
#include "kernels/common/test_numbers.h"
#include "kernels/embedding/embedding.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/loss/part_cross_entropy.h"
#include "kernels/norm/norm.h"
#include "kernels/rotary/rotary.h"

namespace drivetrain::kernels {
namespace {

using namespace test;

struct Bfloat16 {
  static constexpr Dtype kDtype = Dtype::bf16;
  static uint16_t round(float x) { return to_bf16(x); }
  static float widen(uint16_t bits) { return widened(Bf16{bits}); }
};
struct Float16 {
  static constexpr Dtype kDtype = Dtype::f16;
  static uint16_t round(float x) { return to_f16(x); }
  static float widen(uint16_t bits) { return widened(F16{bits}); }
};

// The same numbers in both types.
template <class Type>
struct Both {
  std::vector<uint16_t> narrow;
  std::vector<float> wide;

  explicit Both(const std::vector<float>& x) {
    for (const float value : x) narrow.push_back(Type::round(value)), wide.push_back(Type::widen(narrow.back()));
  }
  explicit Both(int64_t n) : Both(std::vector<float>(static_cast<size_t>(n), 7.0F)) {}  // a result, not written yet
  // NaN if two results are equal; else the index of the first that differ.
  void expect_rounded(const char* what) const {
    for (size_t i = 0; i < narrow.size(); ++i) ASSERT_EQ(narrow[i], Type::round(wide[i])) << what << " at " << i;
  }
};

constexpr int64_t kRows = 70;  // more than one block
constexpr int64_t kColumns[] = {1, 24, 257, 768};

template <class Type>
class NarrowKernels : public ::testing::Test {
 protected:
  using B = Both<Type>;
  static B numbers(int64_t n, uint64_t seed, float spread = 1) { return B(normal_numbers(n, seed, spread)); }

  // Runs the operation in both types: set(op, pointer of) names its memory.
  template <class Op, class Set, class Run>
  void run_both(const Op& common, const Set& set, const Run& run) {
    Op narrow = common, wide = common;
    narrow.dtype = Type::kDtype, wide.dtype = Dtype::f32;
    set(narrow, [](auto& both) { return static_cast<void*>(both.narrow.data()); });
    set(wide, [](auto& both) { return static_cast<void*>(both.wide.data()); });
    run(narrow), run(wide);
  }
};
using Types = ::testing::Types<Bfloat16, Float16>;
TYPED_TEST_SUITE(NarrowKernels, Types);

TYPED_TEST(NarrowKernels, activations) {
  using B = Both<TypeParam>;
  for (const Activation kind : {Activation::gelu_tanh, Activation::gelu, Activation::swiglu})
    for (const int64_t n : kColumns) {
      const int64_t width = kind == Activation::swiglu ? 2 * n : n, blocks = blocks_of(kRows, kActivationRows);
      B x = this->numbers(kRows * width, 1, 3), bias = this->numbers(width, 2), dy = this->numbers(kRows * n, 3);
      B y(kRows * n), dx(kRows * width);
      ActivationForward forward;
      forward.rows = kRows, forward.columns = n, forward.kind = kind;
      this->run_both(
          forward, [&](auto& op, auto at) { op.x = at(x), op.bias = at(bias), op.y = at(y); },
          [](const auto& op) { activation_forward_cpu(op, 0, kRows); });
      y.expect_rounded("y");
      std::vector<float> sums[2] = {std::vector<float>(blocks * width), std::vector<float>(blocks * width)};
      int run = 0;
      ActivationBackward backward;
      backward.rows = kRows, backward.columns = n, backward.kind = kind;
      this->run_both(
          backward,
          [&](auto& op, auto at) {
            op.x = at(x), op.bias = at(bias), op.dy = at(dy), op.dx = at(dx), op.partial = sums[run++].data();
          },
          [&](const auto& op) { activation_backward_cpu(op, 0, blocks); });
      dx.expect_rounded("dx");
      EXPECT_EQ(sums[0], sums[1]);
    }
}

TYPED_TEST(NarrowKernels, norms) {
  using B = Both<TypeParam>;
  for (const bool rms : {false, true})
    for (const int64_t n : kColumns) {
      B x = this->numbers(kRows * n, 1), weight = this->numbers(n, 2), bias = this->numbers(n, 3), y(kRows * n),
        dy = this->numbers(kRows * n, 4), dsum = this->numbers(kRows * n, 5), dx(kRows * n);
      std::vector<float> mean[2], rstd[2], partial[2];
      for (int i : {0, 1})
        mean[i].resize(kRows), rstd[i].resize(kRows), partial[i].resize(2 * blocks_of(kRows, kNormRows) * n);
      int run = 0;
      NormForward forward;
      forward.rows = kRows, forward.columns = n, forward.rms = rms;
      this->run_both(
          forward,
          [&](auto& op, auto at) {
            op.x = at(x), op.weight = at(weight), op.bias = at(bias), op.y = at(y);
            op.mean = mean[run].data(), op.rstd = rstd[run++].data();
          },
          [](const auto& op) { norm_forward_cpu(op, 0, kRows); });
      y.expect_rounded("y");
      EXPECT_EQ(mean[0], mean[1]);
      EXPECT_EQ(rstd[0], rstd[1]);
      run = 0;
      NormBackward backward;
      backward.rows = kRows, backward.columns = n, backward.rms = rms;
      this->run_both(
          backward,
          [&](auto& op, auto at) {
            op.dy = at(dy), op.dsum = at(dsum), op.sum = at(x), op.weight = at(weight), op.dx = at(dx);
            op.mean = mean[0].data(), op.rstd = rstd[0].data(), op.partial = partial[run++].data();
          },
          [](const auto& op) { norm_backward_cpu(op, 0, blocks_of(kRows, kNormRows)); });
      dx.expect_rounded("dx");
      EXPECT_EQ(partial[0], partial[1]);
    }
}

// The residual stream is stored in 16 bits, and what is stored is normalised.
TYPED_TEST(NarrowKernels, norms_of_a_sum_take_the_sum_as_it_is_stored) {
  using B = Both<TypeParam>;
  constexpr int64_t n = 257;
  const B x = this->numbers(kRows * n, 1), delta = this->numbers(kRows * n, 2), weight = this->numbers(n, 3);
  std::vector<float> sums;
  for (size_t i = 0; i < x.wide.size(); ++i) sums.push_back(x.wide[i] + delta.wide[i]);
  const B expected_sum(sums);
  B sum(kRows * n), y(kRows * n), expected_y(kRows * n);
  std::vector<float> mean(kRows), rstd(kRows);
  NormForward op;
  op.rows = kRows, op.columns = n, op.dtype = TypeParam::kDtype, op.mean = mean.data(), op.rstd = rstd.data();
  op.weight = weight.narrow.data();
  op.x = x.narrow.data(), op.delta = delta.narrow.data(), op.sum = sum.narrow.data(), op.y = y.narrow.data();
  norm_forward_cpu(op, 0, kRows);
  EXPECT_EQ(sum.narrow, expected_sum.narrow);
  op.x = expected_sum.narrow.data(), op.delta = nullptr, op.sum = nullptr, op.y = expected_y.narrow.data();
  norm_forward_cpu(op, 0, kRows);
  EXPECT_EQ(y.narrow, expected_y.narrow);
}

TYPED_TEST(NarrowKernels, rotary) {
  using B = Both<TypeParam>;
  constexpr int64_t heads = 3, groups = 2, C = 16, width = (heads + 2 * groups) * C;
  B qkv = this->numbers(kRows * width, 1), bias = this->numbers(width, 2), back(kRows * width);
  B q(kRows * heads * C), k(kRows * groups * C), v(kRows * groups * C);
  const std::vector<float> cos = normal_numbers(kRows * C / 2, 3), sin = normal_numbers(kRows * C / 2, 4);
  Rotary op;
  op.tokens = op.sequence = kRows, op.heads = heads, op.groups = groups, op.head_dim = C;
  op.cos = cos.data(), op.sin = sin.data();
  this->run_both(
      op, [&](auto& o, auto at) { o.qkv = at(qkv), o.bias = at(bias), o.q = at(q), o.k = at(k), o.v = at(v); },
      [](const auto& o) { rotary_forward_cpu(o, 0, kRows); });
  q.expect_rounded("q"), k.expect_rounded("k"), v.expect_rounded("v");
  const B dq(q.wide), dk(k.wide), dv(v.wide);
  B mutable_dq = dq, mutable_dk = dk, mutable_dv = dv;
  this->run_both(
      op, [&](auto& o, auto at) { o.qkv = at(back), o.q = at(mutable_dq), o.k = at(mutable_dk), o.v = at(mutable_dv); },
      [](const auto& o) { rotary_backward_cpu(o, 0, kRows); });
  back.expect_rounded("dqkv");
}

TYPED_TEST(NarrowKernels, embedding_and_column_sums) {
  constexpr int64_t n = 130, vocabulary = 9;
  auto dy = this->numbers(kRows * n, 1);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kRows; ++i) ids.push_back(i * i % vocabulary);
  std::vector<float> dweight[2] = {std::vector<float>(vocabulary * n), std::vector<float>(vocabulary * n)};
  int run = 0;
  EmbeddingBackward op;
  op.tokens = kRows, op.vocabulary = vocabulary, op.columns = n, op.ids = ids.data();
  this->run_both(
      op, [&](auto& o, auto at) { o.dy = at(dy), o.dweight = dweight[run++].data(); },
      [](const auto& o) { embedding_backward_cpu(o, 0, n); });
  EXPECT_EQ(dweight[0], dweight[1]);

  std::vector<float> sums(n, 1.0F);
  ColumnSum columns;
  columns.partial = dy.narrow.data(), columns.partial_dtype = TypeParam::kDtype;
  columns.rows = kRows, columns.columns = n, columns.out = sums.data(), columns.add = true;
  column_sum_cpu(columns, 0, n);
  for (int64_t i = 0; i < n; ++i) {
    double sum = 1;
    for (int64_t row = 0; row < kRows; ++row) sum += static_cast<double>(dy.wide[row * n + i]);
    EXPECT_NEAR(sums[i], sum, kUlp * kRows * kRows);
  }
}

// In float32 the exponentials are kept and multiplied, in 16 bits made again: their last bits differ by that.
TYPED_TEST(NarrowKernels, cross_entropy) {
  using B = Both<TypeParam>;
  const double step = TypeParam::kDtype == Dtype::bf16 ? 0x1.0p-8 : 0x1.0p-11;
  for (const int64_t n : {3, 300, 5000}) {
    const B given = this->numbers(kRows * n, 1, 3);
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kRows; ++i) labels.push_back(i % 7 == 3 ? -1 : i * 31 % n);
    B logits = given, in_parts = given;
    std::vector<double> loss[2] = {std::vector<double>(kRows), std::vector<double>(kRows)};
    int run = 0;
    CrossEntropy op;
    op.rows = kRows, op.columns = n, op.labels = labels.data(), op.scale = 0.5;
    op.gradient = true;
    this->run_both(
        op, [&](auto& o, auto at) { o.logits = at(logits), o.loss = loss[run++].data(); },
        [](const auto& o) { cross_entropy_cpu(o, 0, kRows); });
    for (int64_t i = 0; i < kRows; ++i) EXPECT_NEAR(loss[0][i], loss[1][i], 1e-5);
    for (size_t i = 0; i < logits.wide.size(); ++i)
      ASSERT_NEAR(TypeParam::widen(logits.narrow[i]), logits.wide[i], step * std::abs(logits.wide[i]) + 0x1.0p-24) << i;

    std::vector<double> part(3 * kRows), part_loss(kRows);
    PartCrossEntropy parted;
    parted.rows = kRows, parted.columns = parted.valid = parted.vocabulary = n, parted.labels = labels.data();
    parted.scale = 0.5, parted.part = part.data(), parted.parts = part.data(), parted.loss = part_loss.data();
    parted.logits = in_parts.narrow.data(), parted.dtype = TypeParam::kDtype;
    part_cross_entropy_begin_cpu(parted, 0, kRows);
    part_cross_entropy_end_cpu(parted, 0, kRows);
    for (int64_t i = 0; i < kRows; ++i) EXPECT_NEAR(part_loss[i], loss[0][i], 1e-9);
    EXPECT_EQ(in_parts.narrow, logits.narrow);
  }
}

}  // namespace
}  // namespace drivetrain::kernels
