// A plugin that never returns: it is named, with the hook, the unit and the rank, and no rank stays. One that takes its
// time on one rank: that rank is named, and the part of the step.
#include "misdeeds/misdeeds_fixture.h"
#include "program/background.h"

namespace drivetrain::test {
namespace {

// The others give up first, by the communicator's time-out; then the launcher asks the one that is late. On a busy
// machine ranks may begin seconds apart.
TEST_F(Misdeeds, a_hook_that_never_returns_on_one_rank_of_several) {
  const Ran ran =
      launch(3, misdeed("strategy", "before_forward", "hang", 1) +
                    concat(" --set communicator.timeout_s=", whole_seconds(4)) + " --set train_batch_size=6" + here());
  EXPECT_EQ(ran.code, 5) << ran.output;
  expect_says(ran.output, {"[rank 1] drivetrain: error: in strategy/misdeed, hook before_forward, unit ",
                           ", rank 1: has not returned, while the other ranks waited for it", "leave it out"});
  expect_nothing_half_written();
}

// Nobody waits for a rank alone; and a thread of its own reads the dataset.
TEST_F(Misdeeds, a_hook_that_never_returns_on_the_only_rank) {
  for (const std::string& words : {misdeed("strategy", "after_backward", "hang"), misdeed("dataset", "read", "hang")}) {
    SCOPED_TRACE(words);
    const bool of_strategy = words.find("after_backward") != std::string::npos;
    const int64_t may_take_s = whole_seconds(2);
    const Ran ran = train(words + concat(" --set hook_timeout_s=", may_take_s) + here());
    EXPECT_EQ(ran.code, 3) << ran.output;
    expect_says(ran.output,
                {of_strategy ? "error: in strategy/misdeed, hook after_backward, unit "
                             : "error: in dataset/misdeed, hook read, step 3",
                 concat(": has not returned for ", may_take_s, " s (hook_timeout_s)"), "raise hook_timeout_s"});
    expect_says(file_bytes(path("run/log.txt")), {"/misdeed, hook ", "has not returned"});
    std::filesystem::remove_all(path("run"));
  }
}

// A policy, an opening and a monitor, which has a thread of its own, are calls like any other.
TEST_F(Misdeeds, a_call_of_any_kind_that_never_returns_is_named) {
  const int64_t may_take_s = whole_seconds(2);
  const std::string limit = concat(" --set hook_timeout_s=", may_take_s);
  for (const auto& [words, call] :
       {std::pair{misdeed("checkpoint_policy", "due", "hang"), "checkpoint_policy/misdeed, hook due"},
        {misdeed("dataset", "open", "hang"), "dataset/misdeed, hook open"},
        {misdeed("monitor", "on_event", "hang"), "monitor/misdeed, hook on_event, at step 2"}})
    expect_blamed(train(words + limit + here()), 3,
                  {std::string("error: in ") + call, concat(": has not returned for ", may_take_s, " s")});
}

// Before the ranks have met, too: who asks is told.
TEST_F(Misdeeds, a_rank_that_opens_its_dataset_for_ever_answers_a_question) {
  Background run(folder(),
                 {"/bin/sh", "-c",
                  "exec " + program() + " train " + path("tiny.json") + misdeed("dataset", "open", "hang") + here()});
  ASSERT_TRUE(eventually([&] { return run.ended() || !run.output().empty(); }));
  ASSERT_TRUE(eventually([&] {
    run.signal(SIGUSR2);
    return run.ended() || run.output().find("dataset/misdeed, hook open") != std::string::npos;
  })) << run.output();
  expect_says(run.output(), {"asked where the run is", "dataset/misdeed, hook open"});
  run.signal(SIGKILL);
}

// All ranks have the same step time. The others' is spent waiting.
TEST_F(Misdeeds, a_plugin_that_is_slow_on_one_rank_makes_it_a_straggler) {
  const std::string rule =
      " --set straggler_steps=4 --set straggler_least_s=0.02 --set train_steps=8 --set train_batch_size=6";
  const Ran data = launch(3, misdeed("dataset", "read", "slow", 1) + rule + here());
  EXPECT_EQ(data.code, 0) << data.output;
  expect_says(data.output,
              {"rank 1 is a straggler: its own work takes ", " times the median of ranks 0-2, which do the ",
               "over the last 4 steps", "is in reading data (dataset/misdeed, hook read)"});
  EXPECT_EQ(data.output.find("rank 1 is a straggler"), data.output.rfind("rank 1 is a straggler")) << data.output;
  std::filesystem::remove_all(path("run"));
  const Ran optimizer = launch(3, misdeed("optimizer", "update", "slow", 2) + rule + here());
  expect_says(optimizer.output, {"rank 2 is a straggler: ", "is in the optimizer (optimizer/misdeed)"});
  std::filesystem::remove_all(path("run"));
  const Ran off = launch(3, misdeed("optimizer", "update", "slow", 2) + rule + " --set straggler_factor=0" + here());
  EXPECT_EQ(off.output.find("straggler"), std::string::npos) << off.output;
}

TEST_F(Misdeeds, an_exception_on_one_rank_of_four_ends_all) {
  for (const char* hook : {"before_forward", "after_backward", "flush_grads"})
    expect_blamed(launch(4, misdeed("strategy", hook, "std", 2) + here()), 3,
                  {std::string("in strategy/misdeed, hook ") + hook, ", rank 2: the tape drive is on fire"});
}

}  // namespace
}  // namespace drivetrain::test
