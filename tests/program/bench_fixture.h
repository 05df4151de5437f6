// What the tests of `drivetrain bench` share.
#pragma once

#include "program/program_fixture.h"

namespace drivetrain::test {

class Bench : public ProgramTest {
 protected:
  // What scripts read: stdout alone.
  Ran on_stdout(const std::string& arguments) const {
    return run_shell("cd " + folder() + " && (" + program() + " " + arguments + " 2>errors.txt)");
  }
  Value object(const std::string& arguments) const {
    const Ran ran = on_stdout("bench " + arguments + " --json");
    EXPECT_EQ(ran.code, 0) << ran.output << file_bytes(path("errors.txt"));
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
    const Value value = parse_json(ran.output, "bench");
    EXPECT_GE(value.find("machine")->find("busy_share")->as_double(), 0);
    EXPECT_TRUE(value.find("machine")->find("idle")->is_bool());
    return value;
  }
};

inline void expect_spread(const Value& one, const char* key) {
  const Value* spread = one.find(key);
  ASSERT_NE(spread, nullptr) << key;
  EXPECT_GT(spread->find("min")->as_double(), 0) << key;
  EXPECT_LE(spread->find("min")->as_double(), spread->find("median")->as_double()) << key;
  EXPECT_LE(spread->find("median")->as_double(), spread->find("max")->as_double()) << key;
}

}  // namespace drivetrain::test
