// What shapes waste on a GPU: shares by hand, and advice that is given where something is to be gained and only there.
#include "report/shape_advice.h"

#include <gtest/gtest.h>

namespace drivetrain {
namespace {

TEST(ShapeAdvice, shares_are_those_of_tiles_and_waves) {
  EXPECT_DOUBLE_EQ(tile_share(128, 256), 1);
  EXPECT_DOUBLE_EQ(tile_share(64, 256), 0.5);
  EXPECT_DOUBLE_EQ(tile_share(129, 256), 129. / 256);
  // 108 tiles fill a wave of 108; one more takes a second wave.
  EXPECT_DOUBLE_EQ(wave_share(128 * 108, 256, 108), 1);
  EXPECT_DOUBLE_EQ(wave_share(128 * 109, 256, 108), 109. / 216);
  // As many experts as places fill a wave together, where each alone would leave all others empty.
  EXPECT_DOUBLE_EQ(wave_share(128, 256, 108, 108), 1);
  EXPECT_DOUBLE_EQ(wave_share(128, 256, 108), 1. / 108);
}

bool says(const std::vector<std::string>& lines, std::initializer_list<const char*> parts) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return std::all_of(parts.begin(), parts.end(),
                       [&](const char* part) { return line.find(part) != std::string::npos; });
  });
}

TEST(ShapeAdvice, a_vocabulary_that_is_no_multiple_of_64_is_named_with_the_next_one) {
  ShapeFacts facts;
  facts.products = {{50257, 768, 1, "embedding.word.weight"}};
  EXPECT_TRUE(says(shape_advice(facts), {"embedding.word.weight", "50257", "50304", "16 bytes", "+0.09 %"}));
  facts.products = {{50304, 768, 1, "embedding.word.weight"}};
  EXPECT_TRUE(shape_advice(facts).empty());
  facts.products = {{50304, 800, 1, "embedding.word.weight"}};  // 800 is one of 32: enough for four bytes
  EXPECT_TRUE(says(shape_advice(facts), {"800 is no multiple of 64"}));
  facts.bytes = 4;
  EXPECT_TRUE(shape_advice(facts).empty());
}

TEST(ShapeAdvice, heads_that_kernels_pad_are_told_with_the_gain) {
  ShapeFacts facts;
  facts.head_dim = 80;
  EXPECT_TRUE(says(shape_advice(facts), {"heads of 80", "computed as 96", "1.20 times"}));
  facts.head_dim = 128;
  EXPECT_TRUE(shape_advice(facts).empty());
}

// 19 x 6 tiles want two waves of 108; 18 x 6 one.
TEST(ShapeAdvice, a_micro_batch_that_fills_the_waves_better_is_told_with_the_gain) {
  ShapeFacts facts;
  facts.micro_batch = 19, facts.rows = 19 * 128;
  facts.products = {{6 * 256, 6 * 256, 1, "mlp"}};
  const std::vector<std::string> lines = shape_advice(facts);
  EXPECT_TRUE(says(lines, {"micro-batch 19", "A100", "times"}));
  facts.micro_batch = 1, facts.rows = 2048 * 16, facts.products = {{16384, 16384, 1, "mlp"}};
  EXPECT_TRUE(shape_advice(facts).empty()) << "many waves: hardly anything is lost";
}

}  // namespace
}  // namespace drivetrain
