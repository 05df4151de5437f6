// lr_schedule/wsd against the formulas of its three parts, and its options.
#include <cmath>
#include <numbers>

#include "conformance/lr_schedule/golden.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

constexpr double kHigh = 0.5, kLow = 0.1;
const Hyper kBase{kHigh, 0.25, 0.75};

struct Wsd : ::testing::Test {
  Host host;
  std::shared_ptr<LrSchedule> with(const std::string& style) const {
    return make_plugin<LrSchedule>(host, "wsd",
                                   R"({"warmup_num_steps": 10, "warmup_type": "linear", "decay_num_steps": 40,
        "total_num_steps": 100, "min_lr": 0.1, "decay_style": ")" +
                                       style + "\"}");
  }
  // Of the update after which the schedule's index is t.
  double rate(const std::string& style, int64_t t) const { return rate_at(*with(style), t + 1, kBase); }
};

TEST_F(Wsd, is_a_pure_function_of_the_progress) {
  for (const char* style : {"minus_sqrt", "linear", "cosine", "exponential"}) check_pure_function(*with(style));
}

TEST_F(Wsd, rises_stays_and_falls) {
  EXPECT_EQ(rate("linear", -1), 0);
  EXPECT_EQ(rate("linear", 0), 0);
  EXPECT_DOUBLE_EQ(rate("linear", 5), kHigh / 2);
  for (const int64_t t : {10, 11, 59, 60}) EXPECT_EQ(rate("linear", t), kHigh) << t;
  EXPECT_LT(rate("linear", 61), kHigh);
  for (const int64_t t : {100, 101, 1000}) EXPECT_DOUBLE_EQ(rate("linear", t), kLow) << t;
}

TEST_F(Wsd, falls_in_the_shapes_of_megatron) {
  for (const int64_t t : {61, 70, 80, 99, 100}) {
    const double x = static_cast<double>(t - 60) / 40;
    const auto expected = [&](double left) { return kLow + (kHigh - kLow) * left; };
    EXPECT_DOUBLE_EQ(rate("linear", t), expected(1 - x)) << t;
    EXPECT_DOUBLE_EQ(rate("cosine", t), expected(0.5 * (std::cos(std::numbers::pi * x) + 1))) << t;
    EXPECT_DOUBLE_EQ(rate("minus_sqrt", t), expected(1 - std::sqrt(x))) << t;
    EXPECT_DOUBLE_EQ(rate("exponential", t), expected(2 * std::pow(0.5, x) - 1)) << t;
  }
}

// Where two parts meet no step is larger than the steepest within them.
TEST_F(Wsd, has_no_jump) {
  for (const char* style : {"linear", "cosine", "exponential"})
    for (int64_t t = 1; t < 120; ++t)
      EXPECT_LE(std::abs(rate(style, t) - rate(style, t - 1)), kHigh / 10 + 1e-12) << style << " at " << t;
  EXPECT_DOUBLE_EQ(rate("minus_sqrt", 60) - rate("minus_sqrt", 61), (kHigh - kLow) * std::sqrt(1.0 / 40));
}

TEST_F(Wsd, takes_megatrons_names) {
  const auto own = with("cosine");
  const auto megatron =
      make_plugin<LrSchedule>(host, "wsd",
                              R"({"warmup_num_steps": 10, "warmup_type": "linear", "total_num_steps": 100,
      "lr_wsd_decay_iters": 40, "lr_wsd_decay_style": "cosine", "min_lr": 0.1})");
  for (int64_t k = 0; k < 110; ++k) EXPECT_EQ(rate_at(*own, k, kBase), rate_at(*megatron, k, kBase)) << k;
}

TEST_F(Wsd, takes_the_warmup_options) {
  check_warmup_options(host, "wsd", parse_json(R"({"total_num_steps": 2000, "decay_num_steps": 100})", "test"));
}

TEST_F(Wsd, refuses_what_makes_no_sense) {
  const auto refusal = [&](const char* json) { return error_of([&] { make_plugin<LrSchedule>(host, "wsd", json); }); };
  EXPECT_NE(refusal(R"({"total_num_steps": 100, "decay_num_steps": 91, "warmup_num_steps": 10})")
                .find("the rise takes 10 updates (warmup_num_steps) and the fall 91 (decay_num_steps), more than "
                      "total_num_steps 100"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"total_num_steps": 100, "decay_num_steps": 90, "warmup_num_steps": 10})"), "");
  EXPECT_NE(refusal(R"({"total_num_steps": 2000})").find("decay_num_steps is missing"), std::string::npos);
  EXPECT_NE(refusal(R"({"total_num_steps": 2000, "decay_num_steps": 10, "decay_style": "sqrt"})").find("minus_sqrt"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain
