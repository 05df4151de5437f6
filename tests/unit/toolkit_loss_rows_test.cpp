// Logits whose rows lie apart, as those of a vocabulary that is no multiple of 8 do on a device, and how rows are cut.
#include <drivetrain/toolkit/ops/ops.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

namespace drivetrain {
namespace {

TEST(LossRows, that_lie_apart_have_the_loss_and_gradient_of_dense_ones) {
  constexpr int64_t kRows = 7, kVocabulary = 53, kHidden = 16;
  const at::Tensor x = at::rand({kRows, kHidden}), w = at::rand({kVocabulary, kHidden}) - 0.5;
  at::Tensor labels = at::randint(kVocabulary, {kRows}, at::TensorOptions(at::kLong));
  labels[2].fill_(-100);
  at::Tensor dense = at::mm(x, w.t());
  const at::Tensor memory = at::full({kRows, ops::aligned_columns(kVocabulary)}, 5.0);
  at::Tensor apart = memory.narrow(1, 0, kVocabulary);
  at::mm_out(apart, x, w.t());
  ASSERT_EQ(apart.const_data_ptr(), memory.const_data_ptr());
  EXPECT_TRUE(at::equal(ops::cross_entropy_(apart, labels, true), ops::cross_entropy_(dense, labels, true)));
  EXPECT_TRUE(at::equal(apart, dense));
  EXPECT_TRUE(memory.narrow(1, kVocabulary, memory.size(1) - kVocabulary).eq(5).all().item<bool>());
}

TEST(LossRows, begin_where_products_of_16_bits_want_them) {
  for (const int64_t columns : {1, 63, 64, 65, 257, 50257}) {
    const int64_t apart = ops::aligned_columns(columns);
    EXPECT_EQ(apart % 64, 0);
    EXPECT_GE(apart, columns);
    EXPECT_LT(apart, columns + 64);
  }
}

TEST(LossRows, are_cut_evenly) {
  for (const int64_t rows : {1, 64, 5312, 5313, 32768, 100'000})
    for (const int64_t most : {64, 640, 5312}) {
      const int64_t each = ops::even_rows(rows, most), chunks = (rows + each - 1) / each;
      EXPECT_LE(each, most);
      EXPECT_EQ(chunks, (rows + most - 1) / most) << rows << " at most " << most;
      EXPECT_GT(rows - (chunks - 1) * each, each - 64 * chunks)
          << "the last of " << chunks << " has too few of " << rows;
    }
}

}  // namespace
}  // namespace drivetrain
