// checkpoint_policy/every: when it saves, what it keeps, and its options.
#include <gtest/gtest.h>

#include "support/plugin_under_test.h"
#include "support/save_moments.h"

namespace drivetrain::test {
namespace {

using Steps = std::vector<int64_t>;

struct EveryPolicy : testing::Test {
  std::unique_ptr<CheckpointPolicy> make(const std::string& options) const {
    return make_plugin<CheckpointPolicy>(host, "every", options);
  }
  // Of the steps 1 to `last`, each `seconds_per_step` long.
  Steps due_steps(const std::string& options, int64_t last, double seconds_per_step = 0) const {
    const auto policy = make(options);
    Steps due;
    for (int64_t step = 1; step <= last; ++step)
      if (policy->due(save_moment(step, Value::object(), seconds_per_step * static_cast<double>(step))))
        due.push_back(step);
    return due;
  }
  Steps kept(const std::string& options, const Steps& steps) const {
    return kept_steps(*make(options), stored_tags(steps));
  }
  Host host;
};

TEST_F(EveryPolicy, saves_at_multiples_of_its_steps) {
  EXPECT_EQ(due_steps(R"({"steps": 3})", 10), (Steps{3, 6, 9}));
  EXPECT_EQ(due_steps(R"({"steps": 1})", 3), (Steps{1, 2, 3}));
  EXPECT_EQ(due_steps(R"({"steps": 11})", 10), Steps{});
  EXPECT_EQ(due_steps("{}", 10), Steps{});
}

// A run that goes on at step 8 saves where the uninterrupted one does.
TEST_F(EveryPolicy, counts_steps_of_the_run_and_not_of_its_start) {
  const auto policy = make(R"({"steps": 5})");
  EXPECT_FALSE(policy->due(save_moment(8)));
  EXPECT_TRUE(policy->due(save_moment(10)));
}

TEST_F(EveryPolicy, saves_when_its_minutes_have_passed_since_its_last_save) {
  EXPECT_EQ(due_steps(R"({"minutes": 1})", 9, 20), (Steps{3, 6, 9}));
  EXPECT_EQ(due_steps(R"({"minutes": 1})", 9, 25), (Steps{3, 6, 9})) << "60 s after 75 s are over at 150 s";
  EXPECT_EQ(due_steps(R"({"minutes": 0.5})", 4, 60), (Steps{1, 2, 3, 4})) << "a step may be longer";
  EXPECT_EQ(due_steps(R"({"minutes": 2})", 9, 10), Steps{});
}

TEST_F(EveryPolicy, a_save_by_steps_begins_its_minutes_anew) {
  // By steps at 80 s and 160 s, so 60 s without a save pass first at 140 s.
  EXPECT_EQ(due_steps(R"({"steps": 4, "minutes": 1})", 8, 20), (Steps{3, 4, 7, 8}));
  EXPECT_EQ(due_steps(R"({"steps": 2, "minutes": 1})", 8, 20), (Steps{2, 4, 6, 8}));
}

TEST_F(EveryPolicy, saves_at_the_end_of_a_run_that_is_done) {
  SaveMoment end = save_moment(7);
  end.last = end.done = true;
  EXPECT_TRUE(make("{}")->due(end));
  EXPECT_TRUE(make(R"({"steps": 2})")->due(end));
  EXPECT_FALSE(make(R"({"steps": 2, "at_end": false})")->due(end));
  EXPECT_TRUE(make(R"({"steps": 7, "at_end": false})")->due(end));
  end.done = false, end.signal = 15;  // stopped: that is on_signal's question
  EXPECT_FALSE(make("{}")->due(end));
}

// One that is left out by steps waits for the next multiple, one by minutes for the first step that is free.
TEST_F(EveryPolicy, a_save_while_one_is_being_written_waits_or_is_left_out_and_said) {
  const auto ask = [](CheckpointPolicy& policy, int64_t step, bool busy, double seconds = 0, bool done = false) {
    SaveMoment moment = save_moment(step, Value::object(), seconds);
    moment.busy = busy, moment.last = moment.done = done;
    return policy.due(moment);
  };
  EXPECT_TRUE(ask(*make(R"({"steps": 3})"), 3, true));
  const auto steps = make(R"({"steps": 3, "when_busy": "skip"})");
  EXPECT_FALSE(ask(*steps, 2, true));
  EXPECT_TRUE(host.log.warnings.empty()) << "nothing was due";
  EXPECT_FALSE(ask(*steps, 3, true));
  ASSERT_EQ(host.log.warnings.size(), 1u);
  EXPECT_NE(host.log.warnings[0].find("step 3"), std::string::npos) << host.log.warnings[0];
  EXPECT_FALSE(ask(*steps, 4, false));
  EXPECT_TRUE(ask(*steps, 6, false));
  EXPECT_TRUE(ask(*steps, 7, true, 0, true)) << "the end is not left out";
  const auto minutes = make(R"({"minutes": 1, "when_busy": "skip"})");
  for (int64_t step = 1; step <= 3; ++step) EXPECT_FALSE(ask(*minutes, step, true, 60));
  EXPECT_EQ(host.log.warnings.size(), 2u) << "it is one checkpoint that is late";
  EXPECT_TRUE(ask(*minutes, 4, false, 70));
  EXPECT_FALSE(ask(*minutes, 5, false, 125)) << "a minute after 70 s is not over";
}

TEST_F(EveryPolicy, keeps_the_newest_and_multiples) {
  const Steps steps = {25, 20, 17, 15, 10, 5, 3};
  EXPECT_EQ(kept("{}", steps), (Steps{25, 20}));
  EXPECT_EQ(kept(R"({"keep": 1})", steps), Steps{25});
  EXPECT_EQ(kept(R"({"keep": 4})", steps), (Steps{25, 20, 17, 15}));
  EXPECT_EQ(kept(R"({"keep": 100})", steps), steps);
  EXPECT_EQ(kept(R"({"keep": 0})", steps), steps);
  EXPECT_EQ(kept(R"({"keep": 1, "keep_every": 10})", steps), (Steps{25, 20, 10}));
  EXPECT_EQ(kept(R"({"keep": 3, "keep_every": 5})", steps), (Steps{25, 20, 17, 15, 10, 5}));
  EXPECT_EQ(kept(R"({"keep": 2, "keep_every": 1000})", steps), (Steps{25, 20}));
  EXPECT_EQ(kept(R"({"keep": 0, "keep_every": 10})", steps), steps);
  EXPECT_EQ(kept(R"({"keep": 2, "keep_every": 5})", {}), Steps{});
  EXPECT_EQ(kept(R"({"keep": 2})", {4}), Steps{4});
}

// What a run of twenty steps has in the end, tags removed as they go.
TEST_F(EveryPolicy, retention_step_by_step_is_that_of_all_tags_at_once) {
  for (const char* options :
       {R"({"steps": 2, "keep": 3, "keep_every": 6})", R"({"steps": 1, "keep": 1, "keep_every": 7})",
        R"({"steps": 3, "keep": 2})", R"({"steps": 5, "keep": 0, "keep_every": 10})"}) {
    const auto policy = make(options);
    Steps there, all;
    for (int64_t step = 1; step <= 20; ++step) {
      if (!policy->due(save_moment(step))) continue;
      there.insert(there.begin(), step), all.insert(all.begin(), step);
      there = kept_steps(*policy, stored_tags(there));
    }
    EXPECT_EQ(there, kept_steps(*policy, stored_tags(all))) << options;
  }
}

TEST_F(EveryPolicy, wrong_options_are_refused_by_their_key) {
  const auto refusal = [&](const char* options) { return error_of([&] { make(options); }); };
  const auto expect = [&](const char* options, const char* key) {
    EXPECT_NE(refusal(options).find(key), std::string::npos) << options << ": " << refusal(options);
  };
  expect(R"({"steps": -1})", "steps is -1");
  expect(R"({"keep": -1})", "keep is -1");
  expect(R"({"keep_every": -5})", "keep_every is -5");
  expect(R"({"minutes": -0.5})", "minutes is -0.5");
  expect(R"({"steps": 2.5})", "steps");
  expect(R"({"at_end": 1})", "at_end");
  expect(R"({"keep": "all"})", "keep");
  expect(R"({"when_busy": "never"})", "when_busy is \"never\"");
  expect(R"({"step": 5})", "\"steps\"");
}

}  // namespace
}  // namespace drivetrain::test
