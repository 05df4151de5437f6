// A plugin that never returns: it is named, with the hook, the unit and the rank, and no rank stays.
#include "misdeeds/misdeeds_fixture.h"

namespace drivetrain::test {
namespace {

// The others give up first, by the communicator's time-out; then the launcher asks the one that is late.
TEST_F(Misdeeds, a_hook_that_never_returns_on_one_rank_of_several) {
  const Ran ran = launch(3, misdeed("strategy", "before_forward", "hang", 1) + " --set communicator.timeout_s=1" +
                                " --set train_batch_size=6" + here());
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
    const Ran ran = train(words + " --set hook_timeout_s=1" + here());
    EXPECT_EQ(ran.code, 3) << ran.output;
    expect_says(ran.output, {of_strategy ? "error: in strategy/misdeed, hook after_backward, unit "
                                         : "error: in dataset/misdeed, hook read, step 3",
                             ": has not returned for 1 s (hook_timeout_s)", "raise hook_timeout_s"});
    expect_says(file_bytes(path("run/log.txt")), {"/misdeed, hook ", "has not returned"});
    std::filesystem::remove_all(path("run"));
  }
}

TEST_F(Misdeeds, an_exception_on_one_rank_of_four_ends_all) {
  for (const char* hook : {"before_forward", "after_backward", "flush_grads"})
    expect_blamed(launch(4, misdeed("strategy", hook, "std", 2) + here()), 3,
                  {std::string("in strategy/misdeed, hook ") + hook, ", rank 2: the tape drive is on fire"});
}

}  // namespace
}  // namespace drivetrain::test
