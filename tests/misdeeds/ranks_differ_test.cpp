// Plugins that say one thing on one rank and another on the next: the ranks learn it from each other and end at once,
// in place of waiting for each other or training weights that are not the same.
#include "misdeeds/misdeeds_fixture.h"

namespace drivetrain::test {
namespace {

TEST_F(Misdeeds, rates_that_differ_between_ranks_are_named_with_both) {
  expect_blamed(launch(2, misdeed("lr_schedule", "", "own rate", 1) + here()), 3,
                {"in lr_schedule/misdeed, hook at: rank 1 was given lr 0.5 for the last update, and rank 0 lr 0.001",
                 "the same on every rank"});
  expect_blamed(launch(2, misdeed("lr_schedule", "", "own decay", 0) + here()), 3,
                {"in lr_schedule/misdeed, hook at: rank 1 was given lr 0.001", "with another weight decay"});
  // Behind the last step no other one tells.
  expect_blamed(launch(2, misdeed("lr_schedule", "", "own rate", 1) + " --set train_steps=1" + here()), 3,
                {"rank 1 was given lr 0.5"});
}

TEST_F(Misdeeds, ranks_that_disagree_whether_a_save_is_due_do_not_wait_for_each_other) {
  for (const std::string store : {"", " --set checkpoint_store.asynchronous=false"})
    for (const int rank : {0, 1}) {
      const std::string said = concat("in checkpoint_policy/misdeed, hook due: said on rank ", rank,
                                      " that a checkpoint is due after step 2, and not on rank ", 1 - rank);
      expect_blamed(launch(2, misdeed("checkpoint_policy", "", "save", rank) + store + here()), 3, {said});
    }
  expect_blamed(launch(2, misdeed("checkpoint_policy", "", "save at the end", 1) + here()), 3,
                {"said on rank 1 that a checkpoint is due after step 5, and not on rank 0"});
}

// The loss is the mean over ranks, and the sums over ranks are right: nothing else would tell.
TEST_F(Misdeeds, values_that_drift_apart_are_found_at_the_next_save_or_at_the_end) {
  const std::vector<std::string> words = {"copies of the parameter ", "rank 0 and rank 1", "--resume TAG"};
  const std::string drift = misdeed("strategy", "", "drift", 1) + here();
  const std::string save = R"( --set 'checkpoint_policy={"type": "every", "params": {"steps": 2}}')";
  for (const std::string store : {"", " --set checkpoint_store.asynchronous=false"}) {
    const Ran ran = launch(2, drift + save + store);
    expect_says(ran.output, {"step-00000002 is not saved"});
    expect_blamed(ran, 3, words);
  }
  expect_blamed(launch(2, drift + " --set checkpoint_policy=false"), 3, words);
  EXPECT_EQ(launch(2, misdeed("strategy", "", "none") + here() + " --set checkpoint_policy=false").code, 0);
}

TEST_F(Misdeeds, ranks_that_agree_save_whatever_the_store) {
  for (const std::string store : {"", " --set checkpoint_store.asynchronous=false"}) {
    const Ran ran = launch(2, misdeed("checkpoint_policy", "", "save") + store + here());
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_TRUE(std::filesystem::exists(path("run/checkpoints/step-00000002/manifest.json"))) << ran.output;
    std::filesystem::remove_all(path("run"));
  }
}

}  // namespace
}  // namespace drivetrain::test
