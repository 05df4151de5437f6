// The dynamic loss scale against DeepSpeed's rules, update by update.
#include "step/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

namespace drivetrain {
namespace {

LossScaling rules(double initial, int64_t window, int64_t hysteresis, bool consecutive = false, double minimum = 1) {
  LossScaling r;
  r.initial = initial, r.window = window, r.hysteresis = hysteresis;
  r.consecutive_hysteresis = consecutive, r.minimum = minimum;
  return r;
}

// The scale after each update: 'x' is an overflow, '.' none.
std::string scales(LossScaler scaler, const std::string& updates) {
  std::string text;
  for (const char update : updates) {
    scaler.update(update == 'x');
    text += (text.empty() ? "" : " ") + std::to_string(static_cast<int64_t>(scaler.scale()));
  }
  return text;
}

TEST(LossScaler, begins_as_deepspeed_does) {
  const LossScaler scaler{LossScaling()};
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_TRUE(scaler.dynamic());
  EXPECT_FALSE(scaler.exhausted());
}

TEST(LossScaler, first_grows_in_the_update_after_the_window_and_then_every_window) {
  EXPECT_EQ(scales(LossScaler(rules(8, 3, 2)), "..........."), "8 8 8 16 16 16 32 32 32 64 64");
  LossScaler usual{LossScaling()};
  for (int i = 0; i < 1000; ++i) usual.update(false);
  EXPECT_EQ(usual.scale(), 65536);
  usual.update(false);
  EXPECT_EQ(usual.scale(), 131072);
}

TEST(LossScaler, after_an_overflow_a_window_and_one_more_good_update_have_to_pass) {
  EXPECT_EQ(scales(LossScaler(rules(8, 3, 1)), "..x...."), "8 8 4 4 4 4 8");
  EXPECT_EQ(scales(LossScaler(rules(8, 3, 1)), "...x...x...."), "8 8 8 4 4 4 4 2 2 2 2 4");
}

TEST(LossScaler, tolerates_as_many_overflows_as_hysteresis_says_less_one) {
  EXPECT_EQ(scales(LossScaler(rules(64, 100, 1)), "xx"), "32 16");
  EXPECT_EQ(scales(LossScaler(rules(64, 100, 2)), "x.x"), "64 64 32");
  EXPECT_EQ(scales(LossScaler(rules(64, 100, 3)), "xxx"), "64 64 32");
}

TEST(LossScaler, the_tolerance_stays_used_up_until_the_scale_grows) {
  EXPECT_EQ(scales(LossScaler(rules(64, 100, 2)), "xx.x.x"), "64 32 32 16 16 8");
  // Growth restores it: the next overflow is tolerated again.
  EXPECT_EQ(scales(LossScaler(rules(64, 2, 2)), "xx...xx"), "64 32 32 32 64 64 32");
}

TEST(LossScaler, consecutive_hysteresis_is_restored_by_every_good_update) {
  EXPECT_EQ(scales(LossScaler(rules(64, 100, 2, true)), "x.x.x.xx"), "64 64 64 64 64 64 64 32");
  EXPECT_EQ(scales(LossScaler(rules(64, 100, 2, true)), "xxx"), "64 32 16");
}

TEST(LossScaler, never_falls_below_the_minimum_and_says_when_there_is_no_further) {
  LossScaler scaler(rules(8, 100, 2, false, 3));
  EXPECT_EQ(scales(scaler, "xxx"), "8 4 3");
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(scaler.exhausted()) << i;
    scaler.update(true);
  }
  EXPECT_TRUE(scaler.exhausted());
  scaler.update(false);
  EXPECT_TRUE(scaler.exhausted());  // the tolerance is used up
  LossScaler tolerant(rules(1, 100, 2));
  EXPECT_FALSE(tolerant.exhausted());
  tolerant.update(true);
  EXPECT_TRUE(tolerant.exhausted());
  LossScaler at_once(rules(1, 100, 1));
  EXPECT_TRUE(at_once.exhausted());
}

TEST(LossScaler, a_static_scale_stays) {
  LossScaling fixed;
  fixed.dynamic = false, fixed.initial = 100, fixed.window = 1, fixed.hysteresis = 1;
  EXPECT_EQ(scales(LossScaler(fixed), "..xx.."), "100 100 100 100 100 100");
  EXPECT_FALSE(LossScaler(fixed).exhausted());
}

// The rules as DeepSpeed's update_scale states them, line by line.
struct Stated {
  double scale, minimum;
  int64_t window, hysteresis, left, iteration = 0, last = -1;
  bool consecutive, stopped = false;
  explicit Stated(const LossScaling& r)
      : scale(r.initial),
        minimum(r.minimum),
        window(r.window),
        hysteresis(r.hysteresis),
        left(r.hysteresis),
        consecutive(r.consecutive_hysteresis) {}
  void update(bool overflow) {
    if (overflow) {
      if (hysteresis == 1 || left == 1) {
        stopped = stopped || scale == minimum;
        scale = std::fmax(scale / 2, minimum);
      } else {
        left -= 1;
      }
      last = iteration;
    } else {
      if (consecutive) left = hysteresis;
      const int64_t stable = iteration - last - 1;
      if (stable > 0 && stable % window == 0) {
        if (!consecutive) left = hysteresis;
        scale *= 2;
      }
    }
    iteration += 1;
  }
};

TEST(LossScaler, does_what_the_stated_rules_do_over_any_sequence) {
  std::mt19937 random(7);
  for (int run = 0; run < 400; ++run) {
    const LossScaling r =
        rules(std::exp2(random() % 20), 1 + random() % 9, 1 + random() % 4, random() % 2, 1 + random() % 2);
    LossScaler scaler(r);
    Stated stated(r);
    const unsigned rarity = 2 + random() % 12;
    for (int i = 0; i < 200; ++i) {
      const bool overflow = random() % rarity == 0;
      const bool stops = overflow && scaler.exhausted();
      stated.update(overflow);
      ASSERT_EQ(stops, stated.stopped) << run << ", update " << i;
      if (stops) break;
      scaler.update(overflow);
      ASSERT_EQ(scaler.scale(), stated.scale) << run << ", update " << i;
    }
  }
}

}  // namespace
}  // namespace drivetrain
