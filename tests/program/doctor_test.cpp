// `drivetrain doctor` as it is typed: of the machine, of a config, and with ranks.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

using DoctorProgram = ProgramTest;

TEST_F(DoctorProgram, this_machine_and_its_plugins) {
  const Ran ran = run("doctor");
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output,
              {"machine", "processors", "memory", "/dev/shm", "ulimit", "ports", "disk", "runs go to " + folder(),
               "libraries", "LibTorch", "2.11.0", "plugins", "searched", "(installed)"});
  EXPECT_EQ(ran.output.find("problem "), std::string::npos) << ran.output;
}

TEST_F(DoctorProgram, a_config_is_planned_and_held_against_the_machine) {
  const Ran ran = run("doctor --config " + path("tiny.json") + " --json");
  EXPECT_EQ(ran.code, 0) << ran.output;
  const Value value = parse_json(ran.output, "doctor");
  bool planned = false, memory = false;
  for (const Value& one : value.find("findings")->items()) {
    if (one.find("part")->as_string() != "config") continue;
    planned = planned || one.find("about")->as_string() == "plan";
    memory = memory || (one.find("about")->as_string() == "memory" && one.find("level")->as_string() == "ok");
  }
  EXPECT_TRUE(planned && memory) << ran.output;
  const Value& facts = *value.find("facts");
  EXPECT_GE(facts.find("cores")->as_int(), 1);
  EXPECT_GT(facts.find("memory_bytes")->as_double(), 1e9);
  EXPECT_EQ(facts.find("files")->find("lib/libdrivetrain.so")->as_string().size(), 64U) << "SHA-256";
  EXPECT_FALSE(facts.find("plugins")->members().empty());
  EXPECT_FALSE(std::filesystem::exists(path("run"))) << "nothing is run";
}

TEST_F(DoctorProgram, a_config_that_is_wrong_or_too_large_is_a_problem) {
  tiny_with("\"train_steps\"", "\"train_stps\"");
  const Ran wrong = run("doctor --config " + path("tiny.json"));
  EXPECT_EQ(wrong.code, 2) << wrong.output;
  expect_says(wrong.output, {"problem", "train_stps", "did you mean \"train_steps\"?"});
  write("tiny.json", kTiny);
  tiny_with("\"hidden_size\": 16", "\"hidden_size\": 65536");
  const Ran large = run("doctor --config " + path("tiny.json"));
  EXPECT_EQ(large.code, 2) << large.output;
  expect_says(large.output, {"problem", "memory", "GB", "use a smaller model"});
}

// The device's share and the host's are told apart, whether there is a GPU here or not.
TEST_F(DoctorProgram, what_is_offloaded_is_held_against_the_host_s_memory) {
  const auto told = [&](const std::string& more) {
    return run("doctor --config " + path("tiny.json") + " --ranks 2 --set device=cuda --set bf16.enabled=true" +
               " --set zero_optimization.stage=1" + more)
        .output;
  };
  expect_says(told(" --set zero_optimization.offload_optimizer.device=cpu"),
              {"host memory", "2 ranks of this host with ", "masters on the host, 1/2, float32"});
  EXPECT_EQ(told("").find("host memory"), std::string::npos);
}

TEST_F(DoctorProgram, ranks_compare_every_collective) {
  const Ran ran = run("doctor --ranks 2");
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output,
              {"ranks", "collectives", "2 ranks on cpu agree about every value; communicator/local: all_reduce"});
}

}  // namespace
}  // namespace drivetrain::test
