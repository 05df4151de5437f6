// The arithmetic of dataset/megatron: blends, the permutation, splits, NumPy's shuffle.
#include "blend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "gpt_index.h"
#include "legacy_random.h"
#include "permutation.h"
#include "split.h"

namespace drivetrain::megatron {
namespace {

// Weights that differ by up to a factor of 50.
std::vector<double> some_weights(size_t members, uint32_t seed) {
  LegacyRandom random(seed);
  std::vector<double> weights;
  for (size_t i = 0; i < members; ++i) weights.push_back(std::exp(static_cast<double>(random.up_to(1000)) * 0.004));
  return weights;
}

// The largest distance of any member's samples from its share, over all beginnings of the first `samples`.
double worst_error(const TreeBlend& blend, const std::vector<double>& weights, int64_t samples) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> given(weights.size());
  double worst = 0;
  for (int64_t k = 0; k < samples; ++k) {
    const BlendPlace place = blend.at(k);
    EXPECT_EQ(place.sample, given[static_cast<size_t>(place.member)]++) << "at " << k;
    for (size_t i = 0; i < weights.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(given[i]) - weights[i] / sum * static_cast<double>(k + 1)));
  }
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(blend.given(static_cast<int64_t>(i), samples), given[i]);
  return worst;
}

TEST(TreeBlend, is_near_its_weights_in_every_beginning_and_counts_each_member_through) {
  EXPECT_LE(worst_error(TreeBlend({0.3, 0.7}), {0.3, 0.7}, 1000), 0.5);
  for (uint32_t seed = 0; seed < 10; ++seed) {
    for (const auto& [members, most] : {std::pair<size_t, double>{1, 0}, {2, 0.501}, {3, 1}, {5, 2}, {11, 2}}) {
      const std::vector<double> weights = some_weights(members, seed);
      EXPECT_LE(worst_error(TreeBlend(weights), weights, 500), most) << members << " members, seed " << seed;
    }
  }
}

TEST(TreeBlend, far_places_need_no_walk) {
  const TreeBlend blend({5, 1, 3, 0.25});
  const int64_t far = 3'000'000'000'000;
  for (int64_t k = far; k < far + 50; ++k) {
    const BlendPlace place = blend.at(k);
    EXPECT_EQ(blend.given(place.member, k), place.sample);
    EXPECT_EQ(blend.given(place.member, k + 1), place.sample + 1);
  }
}

std::vector<int64_t> members_of(GreedyBlend blend, int64_t first, int64_t count) {
  std::vector<int64_t> members;
  for (int64_t k = first; k < first + count; ++k) members.push_back(blend.at(k).member);
  return members;
}

TEST(GreedyBlend, is_megatrons) {
  EXPECT_EQ(members_of({{0.3, 0.7}, false}, 0, 10), (std::vector<int64_t>{1, 0, 1, 1, 0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(members_of({{0.5, 0.25, 0.25}, false}, 0, 8), (std::vector<int64_t>{0, 1, 2, 0, 0, 1, 2, 0}));
}

TEST(GreedyBlend, any_place_is_what_the_walk_from_the_first_gives) {
  const std::vector<double> weights = normalized(some_weights(3, 4));
  GreedyBlend walked(weights, false), jumped(weights, false);
  std::vector<BlendPlace> all;
  for (int64_t k = 0; k < 9000; ++k) all.push_back(walked.at(k));
  for (const int64_t k : {8999, 0, 4096, 4095, 8192, 17}) {
    EXPECT_EQ(jumped.at(k).member, all[static_cast<size_t>(k)].member) << k;
    EXPECT_EQ(jumped.at(k).sample, all[static_cast<size_t>(k)].sample) << k;
  }
  const std::vector<int64_t> given = jumped.given(9000);
  EXPECT_EQ(std::accumulate(given.begin(), given.end(), int64_t{0}), 9000);
}

TEST(GreedyBlend, an_exhaustive_one_gives_every_sample_once) {
  GreedyBlend blend({3, 40, 7}, true);
  EXPECT_EQ(blend.given(50), (std::vector<int64_t>{3, 40, 7}));
}

TEST(Permutation, every_place_comes_once_in_every_epoch) {
  for (const int64_t size : {1, 2, 3, 5, 10, 97, 1000, 4096}) {
    std::vector<int64_t> before;
    for (uint32_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < size; ++i) places.push_back(permuted(i, size, {7, 0, 0, epoch}));
      const std::set<int64_t> distinct(places.begin(), places.end());
      EXPECT_EQ(static_cast<int64_t>(distinct.size()), size);
      EXPECT_TRUE(*distinct.begin() == 0 && *distinct.rbegin() == size - 1) << size;
      EXPECT_TRUE(size < 90 || places != before) << "epoch " << epoch << " of " << size;
      before = places;
    }
  }
}

// Each of `size` numbers stands at each place about equally often; the sum has (size - 1)^2 degrees of freedom.
TEST(Permutation, is_even) {
  const int64_t size = 8, trials = 4000;
  std::vector<double> counts(static_cast<size_t>(size * size));
  for (uint32_t epoch = 0; epoch < trials; ++epoch)
    for (int64_t i = 0; i < size; ++i) ++counts[static_cast<size_t>(i * size + permuted(i, size, {3, 1, 2, epoch}))];
  double chi_square = 0;
  const double wanted = static_cast<double>(trials) / static_cast<double>(size);
  for (const double count : counts) chi_square += (count - wanted) * (count - wanted) / wanted;
  EXPECT_LT(chi_square, 100);  // 49 is expected; 85.4 is passed once in a thousand times
}

TEST(Permutation, every_part_of_the_key_counts) {
  const PermutationKey key{1, 0, 0, 0};
  for (const PermutationKey other :
       {PermutationKey{2, 0, 0, 0}, {1ull << 40 | 1, 0, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 0}, {1, 0, 0, 1}}) {
    int64_t same = 0;
    for (int64_t i = 0; i < 1000; ++i) same += permuted(i, 1000, key) == permuted(i, 1000, other);
    EXPECT_LT(same, 12);
  }
}

// From numpy.random.RandomState(seed).shuffle(arange(10)).
TEST(LegacyRandom, shuffles_as_numpy_does) {
  const auto shuffled = [](uint32_t seed) {
    std::vector<int32_t> values(10);
    std::iota(values.begin(), values.end(), 0);
    LegacyRandom(seed).shuffle(values.data(), 10);
    return values;
  };
  EXPECT_EQ(shuffled(0), (std::vector<int32_t>{2, 8, 4, 9, 1, 6, 7, 3, 0, 5}));
  EXPECT_EQ(shuffled(1234), (std::vector<int32_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  EXPECT_EQ(shuffled(42), (std::vector<int32_t>{8, 1, 5, 0, 7, 2, 9, 4, 3, 6}));
}

TEST(Split, cuts_where_megatron_does) {
  const auto ends = [](const std::string& text, int64_t count) {
    const Split split(text);
    return std::vector<int64_t>{split.sequences(0, count).end, split.sequences(1, count).end,
                                split.sequences(2, count).end};
  };
  EXPECT_EQ(ends("969,30,1", 1000), (std::vector<int64_t>{969, 999, 1000}));
  EXPECT_EQ(ends("969, 30, 1", 10), (std::vector<int64_t>{10, 10, 10}));
  EXPECT_EQ(ends("1,1", 5), (std::vector<int64_t>{2, 5, 0})) << "half goes to the even number";
  EXPECT_EQ(ends("1,1", 7), (std::vector<int64_t>{4, 7, 0}));
  EXPECT_FALSE(Split("100,0,0").has(1));
  EXPECT_FALSE(Split("100").has(2));
}

TEST(GptShape, separates_the_last_epoch_below_four_fifths) {
  EXPECT_EQ(gpt_shape(25, 4, 5).epochs, 1);
  const GptShape two = gpt_shape(25, 4, 8);
  EXPECT_EQ(two.epochs, 2);
  EXPECT_EQ(two.before, 6);
  EXPECT_TRUE(two.last_apart);
  EXPECT_FALSE(gpt_shape(25, 4, 11).last_apart);
  EXPECT_EQ(gpt_shape(25, 4, std::nullopt).samples, 6);
}

}  // namespace
}  // namespace drivetrain::megatron
