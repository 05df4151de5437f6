// Random numbers are functions of names and global indices: known answers, slices, splits of a batch, moments, dropout.
#include <drivetrain/random.h>

#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include <drivetrain/error.h>
#include "kernels/random/philox.h"

namespace drivetrain {
namespace {

at::Tensor normals(int64_t count, int64_t begin = 0, uint64_t seed = 5, const char* name = "w", double std = 1) {
  at::Tensor out = at::empty({count});
  fill_normal(out, seed, name, begin, std);
  return out;
}

RandomKey key_at(int64_t first_sample, uint64_t step = 3, const char* site = "block.0.dropout1") {
  return {11, step, hash_name(site), first_sample, {}};
}

at::Tensor uniforms(std::vector<int64_t> shape, const RandomKey& key) {
  at::Tensor out = at::empty(shape);
  fill_uniform(out, key);
  return out;
}

double item(const at::Tensor& t) { return t.item<double>(); }

// Random123's kat_vectors.
TEST(Philox, gives_the_known_answers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// What the kernels for CUDA draw, of which kernels/random has the tests.
TEST(FillUniform, gives_the_numbers_that_a_device_draws) {
  RandomKey key = key_at(4);
  key.rows = {{5, 2}, {1, 1}};
  constexpr int64_t kRow = 7;
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto words =
      philox({low(key.site), high(key.site), low(key.step), high(key.step)}, {low(key.seed), high(key.seed)});
  const at::Tensor found = uniforms({3, 3, kRow}, key);
  const int64_t whole_rows[] = {5, 6, 1};
  for (int64_t sample = 0; sample < 3; ++sample)
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t i = 0; i < kRow; ++i) {
        const auto element = static_cast<uint64_t>(whole_rows[row] * kRow + i);
        const auto block = kernels::philox_block(element / 4, static_cast<uint64_t>(4 + sample), words[0], words[1]);
        EXPECT_EQ(found[sample][row][i].item<float>(), kernels::uniform_of(block.word[element % 4]));
      }
}

TEST(HashName, is_fnv_1a) {
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8u);
}

TEST(FillNormal, any_slice_draws_what_the_whole_draws) {
  const at::Tensor whole = normals(5000);
  for (const auto& [begin, count] : {std::pair{0, 1}, {1, 3}, {1023, 2}, {1024, 1024}, {777, 3210}, {4999, 1}})
    EXPECT_TRUE(at::equal(normals(count, begin), whole.narrow(0, begin, count))) << begin << " " << count;
}

TEST(FillNormal, has_the_moments_of_a_normal_distribution) {
  const int64_t n = 1 << 21;
  const at::Tensor x = normals(n).to(at::kDouble);
  const double sigma = 1 / std::sqrt(static_cast<double>(n));
  EXPECT_LT(std::fabs(item(x.mean())), 5 * sigma);
  EXPECT_LT(std::fabs(item(at::mul(x, x).mean()) - 1), 5 * std::sqrt(2.) * sigma);
  EXPECT_LT(std::fabs(item(at::mul(at::mul(x, x), x).mean())), 5 * std::sqrt(15.) * sigma);
  EXPECT_LT(std::fabs(item(x.pow(4).mean()) - 3), 5 * std::sqrt(96.) * sigma);
  // Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded once in a thousand.
  const at::Tensor sorted = std::get<0>(at::sort(x));
  const double* value = sorted.const_data_ptr<double>();
  double worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double expected = 0.5 * std::erfc(-value[i] / std::sqrt(2.));
    worst = std::max(worst, std::fabs(expected - (static_cast<double>(i) + 0.5) / static_cast<double>(n)));
  }
  EXPECT_LT(worst, 1.95 * sigma);
}

TEST(FillNormal, neighbours_names_and_seeds_are_independent) {
  const int64_t n = 1 << 18;
  const at::Tensor x = normals(n + 4).to(at::kDouble);
  const double bound = 5 / std::sqrt(static_cast<double>(n));
  for (int64_t lag = 1; lag < 5; ++lag)
    EXPECT_LT(std::fabs(item(at::mul(x.narrow(0, 0, n), x.narrow(0, lag, n)).mean())), bound) << lag;
  const at::Tensor first = x.narrow(0, 0, n);
  EXPECT_LT(std::fabs(item(at::mul(first, normals(n, 0, 6).to(at::kDouble)).mean())), bound);
  EXPECT_LT(std::fabs(item(at::mul(first, normals(n, 0, 5, "v").to(at::kDouble)).mean())), bound);
}

TEST(FillNormal, scales_by_std) { EXPECT_TRUE(at::equal(normals(100, 7, 5, "w", 0.5), at::mul(normals(100, 7), 0.5))); }

TEST(FillUniform, does_not_depend_on_how_a_batch_is_split) {
  const at::Tensor whole = uniforms({6, 5, 300}, key_at(40));
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_TRUE(at::equal(uniforms({1, 5, 300}, key_at(40 + i)), whole.narrow(0, i, 1))) << i;
}

// The rows of `x` [B, R, ...] that the ranges name, one after another.
at::Tensor rows_of(const at::Tensor& x, const std::vector<RowRange>& ranges) {
  std::vector<at::Tensor> parts;
  for (const RowRange& range : ranges) parts.push_back(x.narrow(1, range.first, range.count));
  return at::cat(parts, 1);
}

TEST(FillUniform, rows_of_the_second_dimension_get_what_the_whole_has_in_their_place) {
  const std::vector<std::vector<RowRange>> slices = {
      {{0, 13}}, {{5, 3}}, {{12, 1}}, {{0, 2}, {11, 2}}, {{9, 2}, {1, 3}}, {{3, 0}, {4, 5}, {9, 0}}, {{2, 1}, {2, 1}}};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3, 13}, {2, 13, 1}, {2, 13, 7}, {3, 13, 5, 11}, {2, 13, 1024}, {1, 13, 1537}}) {
    const at::Tensor whole = uniforms(shape, key_at(17));
    for (const std::vector<RowRange>& rows : slices) {
      RandomKey key = key_at(17);
      key.rows = rows;
      const at::Tensor wanted = rows_of(whole, rows);
      EXPECT_TRUE(at::equal(uniforms(wanted.sizes().vec(), key), wanted))
          << at::IntArrayRef(shape) << " from row " << rows[0].first;
    }
  }
}

TEST(FillUniform, ranges_that_name_all_rows_in_order_change_nothing) {
  RandomKey key = key_at(0);
  key.rows = {{0, 4}, {4, 5}};
  EXPECT_TRUE(at::equal(uniforms({2, 9, 33}, key), uniforms({2, 9, 33}, key_at(0))));
  key.rows = {{0, 0}};
  EXPECT_EQ(uniforms({2, 0, 33}, key).numel(), 0);
}

TEST(FillUniform, refuses_rows_that_the_tensor_does_not_have) {
  RandomKey key = key_at(0);
  key.rows = {{0, 2}, {6, 3}};
  const auto error = [&](std::vector<int64_t> shape) {
    try {
      uniforms(std::move(shape), key);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error({2, 5, 3}), "");
  EXPECT_EQ(error({2, 9, 3}), "fill_uniform: the key is for 5 rows in dimension 1, the tensor has the shape [2, 9, 3]");
  EXPECT_EQ(error({5}), "fill_uniform: the key is for 5 rows in dimension 1, the tensor has the shape [5]");
}

TEST(FillUniform, lies_in_0_to_1_and_differs_between_sites_steps_and_samples) {
  const at::Tensor x = uniforms({64, 4096}, key_at(0)).to(at::kDouble);
  EXPECT_GE(item(x.min()), 0);
  EXPECT_LT(item(x.max()), 1);
  const double sigma = 1 / std::sqrt(12. * static_cast<double>(x.numel()));
  EXPECT_LT(std::fabs(item(x.mean()) - 0.5), 5 * sigma);
  const at::Tensor same = uniforms({2, 8}, key_at(0));
  EXPECT_FALSE(at::equal(same.select(0, 0), same.select(0, 1)));
  EXPECT_FALSE(at::equal(same, uniforms({2, 8}, key_at(0, 4))));
  EXPECT_FALSE(at::equal(same, uniforms({2, 8}, key_at(0, 3, "block.0.dropout2"))));
}

TEST(Dropout, keeps_and_scales_where_the_uniform_number_is_at_least_p) {
  const at::Tensor x = normals(4 * 1300).view({4, 1300});
  const at::Tensor y = dropout(x, 0.25, key_at(9));
  const at::Tensor keep = at::ge(uniforms({4, 1300}, key_at(9)), 0.25);
  EXPECT_TRUE(at::equal(y, at::where(keep, at::mul(x, static_cast<float>(1 / 0.75)), at::zeros({4, 1300}))));
}

TEST(Dropout, backward_uses_the_mask_of_forward_also_for_strided_inputs) {
  const at::Tensor x = at::ones({3, 64, 7}).transpose(1, 2).detach().set_requires_grad(true);
  const at::Tensor y = dropout(x, 0.5, key_at(0));
  at::sum(y).backward();
  EXPECT_TRUE(at::equal(x.grad(), y.detach()));
  EXPECT_GT(item(y.sum()), 0);
  EXPECT_LT(item(y.sum()), 2 * 3 * 64 * 7);
}

TEST(Dropout, of_rows_is_the_whole_ones_dropout_of_them_forward_and_backward) {
  const std::vector<RowRange> rows = {{1, 3}, {9, 2}};
  const at::Tensor x = normals(2 * 11 * 301).view({2, 11, 301}), y = dropout(x, 0.3, key_at(5));
  RandomKey key = key_at(5);
  key.rows = rows;
  const at::Tensor slice = rows_of(x, rows).detach().set_requires_grad(true);
  const at::Tensor dropped = dropout(slice, 0.3, key);
  EXPECT_TRUE(at::equal(dropped.detach(), rows_of(y, rows)));
  at::sum(dropped).backward();
  EXPECT_TRUE(at::equal(slice.grad(), rows_of(dropout(at::ones({2, 11, 301}), 0.3, key_at(5)), rows)));
}

TEST(Dropout, every_floating_dtype_gets_the_same_mask) {
  const at::Tensor mask = at::ge(dropout(at::ones({5, 33}), 0.5, key_at(2)), 1);
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16, at::kHalf})
    EXPECT_TRUE(at::equal(at::ge(dropout(at::ones({5, 33}, dtype), 0.5, key_at(2)), 1), mask)) << toString(dtype);
}

TEST(Dropout, of_0_is_the_input_itself_and_of_1_is_nothing) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_TRUE(dropout(x, 0, key_at(0)).is_same(x));
  EXPECT_TRUE(at::equal(dropout(x, 1, key_at(0)), at::zeros({2, 3})));
}

TEST(Dropout, refuses_what_is_no_probability) {
  try {
    dropout(at::ones({2, 3}), 1.5, key_at(0));
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "dropout 1.5 is not a probability (0 to 1)");
  }
}

TEST(PartOf, even_parts_of_ranges_follow_their_order_and_make_up_the_whole) {
  const std::vector<RowRange> rows = {{10, 3}, {0, 5}, {20, 4}};
  EXPECT_EQ(part_of(rows, 3, 0), (std::vector<RowRange>{{10, 3}, {0, 1}}));
  EXPECT_EQ(part_of(rows, 3, 1), (std::vector<RowRange>{{1, 4}}));
  EXPECT_EQ(part_of(rows, 3, 2), (std::vector<RowRange>{{20, 4}}));
  EXPECT_EQ(part_of(rows, 1, 0), rows);
  EXPECT_THROW(part_of(rows, 5, 0), Error);
}

}  // namespace
}  // namespace drivetrain
