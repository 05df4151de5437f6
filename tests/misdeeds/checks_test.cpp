// `train --check-plugins`: what only a look at every call can find.
#include "misdeeds/misdeeds_fixture.h"

namespace drivetrain::test {
namespace {

constexpr const char* kCheck = " --check-plugins --set gradient_accumulation_steps=2";

TEST_F(Misdeeds, values_that_are_not_its_own_may_not_be_written) {
  const std::string ahead = misdeed("strategy", "", "write ahead"), behind = misdeed("strategy", "", "write behind");
  expect_blamed(ahead + kCheck, 3,
                {"in strategy/misdeed, hook before_forward, unit ", "wrote to the values of block.0.",
                 " of unit block.0", "only the storage owner may touch"});
  expect_blamed(behind + kCheck, 3,
                {"in strategy/misdeed, hook after_backward, unit ", "wrote to the values of block.0."});
  expect_blamed(launch(2, misdeed("strategy", "", "write behind", 1) + here() + " --check-plugins"), 3,
                {"in strategy/misdeed, hook after_backward, unit ", ", rank 1: wrote to the values of block.0."});
}

TEST_F(Misdeeds, a_gradient_that_was_forgotten_is_named) {
  expect_blamed(misdeed("strategy", "", "forget") + kCheck, 3,
                {"in model/gpt, hook backward, unit block.0: wrote no gradient of block.0.", "Param::write_grad"});
}

// Without the switch nobody looks; with it, plugins that do nothing wrong train, however their state is sharded.
TEST_F(Misdeeds, plugins_that_do_nothing_wrong_pass_the_check) {
  for (const std::string& words :
       {std::string(), std::string(" --set zero_optimization.stage=1"), std::string(" --set zero_optimization.stage=3"),
        std::string(" --set tensor_parallel.size=2"), std::string(" --set activation_checkpointing=full")}) {
    const Ran ran = launch(2, misdeed("strategy", "", "") + words + here() + " --check-plugins");
    EXPECT_EQ(ran.code, 0) << words << ran.output;
    std::filesystem::remove_all(path("run"));
  }
}

}  // namespace
}  // namespace drivetrain::test
