// Runs of the built program with the plugins of misdeeds.cpp, and what every failure of theirs has to look like.
#pragma once

#include "program/program_fixture.h"

namespace drivetrain::test {

class Misdeeds : public ProgramTest {
 protected:
  // `--set` words that choose kind/misdeed, doing `deed` in the call `in`.
  static std::string misdeed(const std::string& kind, const std::string& in, const std::string& deed, int rank = -1) {
    const std::string key = kind == "lr_schedule" ? "scheduler"
                            : kind == "recompute" ? "activation_checkpointing"
                            : kind == "schedule"  ? "pipeline"
                                                  : kind;
    return " --set '" + key + "={\"type\":\"misdeed\",\"params\":{\"in\":\"" + in + "\",\"deed\":\"" + deed +
           "\",\"rank\":" + std::to_string(rank) + "}}'";
  }
  static std::string here() { return " --plugin-path " DRIVETRAIN_MISDEEDS_DIR; }

  // The exit code, the words in their order, at most a dozen lines, none of a stack.
  void expect_blamed(const Ran& ran, int code, const std::vector<std::string>& parts) const {
    EXPECT_EQ(ran.code, code) << ran.output;
    expect_says(ran.output, parts);
    for (const char* stack : {"internal error", "Exception raised from", "frame #", "stack (addr2line"})
      EXPECT_EQ(ran.output.find(stack), std::string::npos) << ran.output;
    expect_nothing_half_written();
    std::filesystem::remove_all(path("run"));
  }
  void expect_blamed(const std::string& arguments, int code, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(arguments);
    expect_blamed(train(arguments + here()), code, parts);
  }
};

}  // namespace drivetrain::test
