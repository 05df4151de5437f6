// checkpoint_policy/on_signal: saves where a signal stops the run, keeps nothing, has no options.
#include <gtest/gtest.h>

#include "support/plugin_under_test.h"
#include "support/save_moments.h"

namespace drivetrain::test {
namespace {

struct OnSignalPolicy : testing::Test {
  Host host;
  const std::unique_ptr<CheckpointPolicy> policy = make_plugin<CheckpointPolicy>(host, "on_signal");
};

TEST_F(OnSignalPolicy, saves_when_a_signal_stops_the_run_and_only_then) {
  for (const int64_t step : {1, 2, 100}) EXPECT_FALSE(policy->due(save_moment(step)));
  for (const int number : {2, 10, 15}) {
    SaveMoment moment = save_moment(3);
    moment.last = true, moment.signal = number;
    EXPECT_TRUE(policy->due(moment)) << number;
  }
  EXPECT_FALSE(policy->due(save_moment(4))) << "an earlier signal is not remembered";
  SaveMoment end = save_moment(5);
  end.last = end.done = true;
  EXPECT_FALSE(policy->due(end)) << "a run that is done was not stopped";
}

TEST_F(OnSignalPolicy, wants_no_tag_kept) {
  for (const std::vector<int64_t>& steps : {std::vector<int64_t>{}, {4}, {9, 7, 3}}) {
    EXPECT_EQ(policy->keep(stored_tags(steps)), std::vector<bool>(steps.size(), false));
  }
}

TEST_F(OnSignalPolicy, has_no_options) {
  const std::string error = error_of([&] { make_plugin<CheckpointPolicy>(host, "on_signal", R"({"signals": [15]})"); });
  EXPECT_NE(error.find("signals is not an option"), std::string::npos) << error;
}

}  // namespace
}  // namespace drivetrain::test
