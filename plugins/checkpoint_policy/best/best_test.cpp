// checkpoint_policy/best: which figures count as better, what stays, how it goes on after a restart, and its options.
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/keeper.h>
#include "support/plugin_under_test.h"
#include "support/save_moments.h"

namespace drivetrain::test {
namespace {

using Steps = std::vector<int64_t>;
constexpr const char* kLowest = R"({"metric": "loss"})";
constexpr const char* kHighest = R"({"metric": "loss", "mode": "max"})";

struct BestPolicy : testing::Test {
  std::unique_ptr<CheckpointPolicy> make(const std::string& options) const {
    return make_plugin<CheckpointPolicy>(host, "best", options);
  }
  // Of steps whose figure "loss" has these values.
  static Steps due_steps(CheckpointPolicy& policy, const std::vector<double>& losses, int64_t first = 1) {
    Steps due;
    for (size_t i = 0; i < losses.size(); ++i)
      if (const int64_t step = first + static_cast<int64_t>(i);
          policy.due(save_moment(step, one_figure("loss", losses[i]))))
        due.push_back(step);
    return due;
  }
  Steps due_steps(const char* options, const std::vector<double>& losses) const {
    return due_steps(*make(options), losses);
  }
  // A policy that goes on with what `before` had shown.
  std::unique_ptr<CheckpointPolicy> restarted(CheckpointPolicy& before, const std::string& options) const {
    Keeper keeper;
    before.state(keeper);
    auto after = make(options);
    keeper.loading = true;
    after->state(keeper);
    return after;
  }
  Host host;
};

TEST_F(BestPolicy, saves_when_the_figure_is_better_than_ever) {
  EXPECT_EQ(due_steps(kLowest, {3, 2, 2.5, 2, 1, 1.5}), (Steps{1, 2, 5}));
  EXPECT_EQ(due_steps(kHighest, {3, 2, 3, 3.5, -1, 4}), (Steps{1, 4, 6}));
  EXPECT_EQ(due_steps(kLowest, {-1, -2, 0}), (Steps{1, 2}));
  EXPECT_EQ(due_steps(kHighest, {-3, -2, -2}), (Steps{1, 2}));
}

TEST_F(BestPolicy, steps_without_the_figure_are_passed_over) {
  const auto policy = make("{}");  // valid_loss
  EXPECT_FALSE(policy->due(save_moment(1)));
  EXPECT_FALSE(policy->due(save_moment(2, one_figure("loss", 1))));
  EXPECT_TRUE(policy->due(save_moment(3, one_figure("valid_loss", 2))));
  EXPECT_FALSE(policy->due(save_moment(4)));
  for (const Value& value : {Value(), Value("1.5"), Value(true)})
    EXPECT_FALSE(policy->due(save_moment(5, Value::Object{{"valid_loss", value}}))) << value.to_json();
  EXPECT_TRUE(policy->due(save_moment(6, one_figure("valid_loss", 1.75))));
  EXPECT_TRUE(policy->due(save_moment(7, Value::Object{{"valid_loss", 1}}))) << "a whole number is a number";
}

// One such figure neither is the best nor spoils the comparison with those that follow.
TEST_F(BestPolicy, figures_that_are_not_finite_are_passed_over) {
  for (const char* options : {kLowest, kHighest})
    for (const double odd : {kNoNumber, kInfinite, -kInfinite}) {
      const auto plain = make(options), spoilt = make(options);
      EXPECT_EQ(due_steps(*spoilt, {odd}), Steps{}) << options << " " << odd;
      EXPECT_EQ(due_steps(*spoilt, {3, 2, 4}), due_steps(*plain, {3, 2, 4})) << options << " " << odd;
      EXPECT_EQ(due_steps(*spoilt, {odd, odd}), Steps{}) << options << " " << odd;
      EXPECT_EQ(due_steps(*spoilt, {3, 1, 5}), due_steps(*plain, {3, 1, 5})) << options << " " << odd;
    }
}

TEST_F(BestPolicy, keeps_the_best_few_and_the_newer_of_equal_ones) {
  const auto tags = stored_tags({6, 5, 4, 3, 2, 1}, {one_figure("loss", 3), one_figure("loss", 1), Value::object(),
                                                     one_figure("loss", 2), one_figure("loss", 1), Value()});
  EXPECT_EQ(kept_steps(*make(kLowest), tags), Steps{5});
  EXPECT_EQ(kept_steps(*make(kHighest), tags), Steps{6});
  EXPECT_EQ(kept_steps(*make(R"({"metric": "loss", "keep": 2})"), tags), (Steps{5, 2}));
  EXPECT_EQ(kept_steps(*make(R"({"metric": "loss", "keep": 3})"), tags), (Steps{5, 3, 2}));
  EXPECT_EQ(kept_steps(*make(R"({"metric": "loss", "keep": 50})"), tags), (Steps{6, 5, 3, 2}));
  EXPECT_EQ(kept_steps(*make(R"({"metric": "grad_norm", "keep": 50})"), tags), Steps{});
  EXPECT_EQ(kept_steps(*make(kLowest), {}), Steps{});
}

TEST_F(BestPolicy, tags_whose_figure_is_not_finite_are_not_among_the_best) {
  const auto tags = stored_tags({5, 4, 3, 2, 1},
                                {one_figure("loss", kNoNumber), one_figure("loss", 2), one_figure("loss", -kInfinite),
                                 one_figure("loss", 1), one_figure("loss", kInfinite)});
  EXPECT_EQ(kept_steps(*make(R"({"metric": "loss", "keep": 4})"), tags), (Steps{4, 2}));
  EXPECT_EQ(kept_steps(*make(kHighest), tags), Steps{4});
}

TEST_F(BestPolicy, goes_on_after_a_restart_with_the_best_so_far) {
  for (const char* options : {kLowest, kHighest}) {
    const auto whole = make(options);
    const Steps first = due_steps(*whole, {3, 2, 4});
    const auto second = restarted(*whole, options);
    EXPECT_EQ(due_steps(*second, {2.5, 4, 1, 5}, 4), due_steps(*whole, {2.5, 4, 1, 5}, 4)) << options;
  }
}

TEST_F(BestPolicy, a_restart_before_the_first_figure_begins_anew) {
  for (const char* options : {kLowest, kHighest})
    EXPECT_EQ(due_steps(*restarted(*make(options), options), {7}), Steps{1}) << options;
}

// Else the best of one figure would be the bar of another, which it may never reach.
TEST_F(BestPolicy, a_restart_with_another_figure_or_mode_begins_anew) {
  const auto loss = make(kLowest);
  due_steps(*loss, {0.5});
  EXPECT_EQ(due_steps(*restarted(*loss, kHighest), {0.25, 0.375}), (Steps{1, 2}));
  const auto valid = restarted(*loss, "{}");
  EXPECT_TRUE(valid->due(save_moment(2, one_figure("valid_loss", 3))));
  EXPECT_EQ(due_steps(*restarted(*loss, R"({"metric": "loss", "keep": 5})"), {0.75, 0.25}), Steps{2})
      << "how many stay has nothing to do with it";
}

TEST_F(BestPolicy, a_figure_that_no_step_had_is_told_in_the_end) {
  const auto end_with = [&](CheckpointPolicy& policy, const char* figure) {
    SaveMoment end = save_moment(9, one_figure(figure, 1));
    end.last = end.done = true;
    policy.due(end);
  };
  const auto seen = make(kLowest);
  due_steps(*seen, {2});
  end_with(*seen, "grad_norm");
  end_with(*make(kLowest), "loss");
  EXPECT_TRUE(host.log.warnings.empty()) << host.log.warnings[0];
  const auto misspelt = make(R"({"metric": "val_loss"})");
  misspelt->due(save_moment(8, one_figure("loss", 1)));
  EXPECT_TRUE(host.log.warnings.empty()) << "it may still come";
  end_with(*misspelt, "loss");
  ASSERT_EQ(host.log.warnings.size(), 1u);
  for (const char* part : {"\"val_loss\"", "are loss;"})
    EXPECT_NE(host.log.warnings[0].find(part), std::string::npos) << host.log.warnings[0];
}

TEST_F(BestPolicy, wrong_options_are_refused_by_their_key) {
  const auto refusal = [&](const char* options) { return error_of([&] { make(options); }); };
  const auto expect = [&](const char* options, const char* key) {
    EXPECT_NE(refusal(options).find(key), std::string::npos) << options << ": " << refusal(options);
  };
  expect(R"({"mode": "least"})", "mode is \"least\"");
  expect(R"({"keep": 0})", "keep is 0");
  expect(R"({"metric": 3})", "metric");
  expect(R"({"metric": ""})", "metric");
  expect(R"({"metrics": "loss"})", "\"metric\"");
  EXPECT_EQ(refusal(R"({"mode": "MAX"})"), "");
}

}  // namespace
}  // namespace drivetrain::test
