// Runs of the program that save as they go, in the folder "b". For tests.
#pragma once

#include "program/background.h"

namespace drivetrain::test {

struct SavingRuns : ProgramTest {
  static std::string policy(int steps) {
    return concat(R"('checkpoint_policy=["on_signal", {"type": "every", "params": {"steps": )", steps,
                  R"(, "keep": 0}}]')");
  }
  // Words without a shell.
  Background start(int ranks, const std::string& output, int64_t steps, int every) const {
    std::string words = policy(every);
    words = words.substr(1, words.size() - 2);  // without the shell's quotes
    return Background(folder(),
                      {program(), "launch", "-n", std::to_string(ranks), path("tiny.json"), "--set", words, "--resume",
                       "auto", "--set", concat("train_steps=", steps), "--set", "output_dir=" + output});
  }
  std::string tag(int64_t step) const { return path(concat("b/checkpoints/step-0000000", step)); }
};

}  // namespace drivetrain::test
