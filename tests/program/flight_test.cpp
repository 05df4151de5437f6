// A run that does not go on: which rank is named, what a dead run leaves, and what asking costs.
#include "program/background.h"

namespace drivetrain::test {
namespace {

class Flight : public ProgramTest {
 protected:
  // A run without an end, once it has made steps.
  Background running(int ranks, const std::vector<std::string>& sets = {}) const {
    std::vector<std::string> list = {program(), "launch", path("tiny.json"), "-n", std::to_string(ranks)};
    for (const std::string& set : sets) list.insert(list.end(), {"--set", set});
    list.insert(list.end(), {"--set", "train_steps=100000000"});
    Background launch(folder(), list);
    EXPECT_TRUE(launch.wait_for_file(path("run/metrics.jsonl"))) << launch.output();
    EXPECT_TRUE(eventually([&] { return file_bytes(path("run/metrics.jsonl")).size() > 2000; }));
    return launch;
  }
  bool says(const Background& launch, const std::string& part) const {
    return eventually([&] { return launch.output().find(part) != std::string::npos; });
  }
  int pid_of_rank(int rank) const { return test::pid_of_rank(path("tiny.json"), rank); }
};

TEST_F(Flight, a_rank_that_is_stopped_is_named_and_a_dead_run_can_be_read) {
  Background launch = running(4, {"stall_report_s=1"});
  const int victim = pid_of_rank(2);
  ASSERT_EQ(kill(victim, SIGSTOP), 0);
  EXPECT_TRUE(says(launch, "the run does not go on: rank 2 does not answer: stopped")) << launch.output();
  EXPECT_TRUE(says(launch, "ranks 0, 1 and 3 wait in ")) << launch.output();
  ASSERT_EQ(kill(victim, SIGCONT), 0);
  EXPECT_TRUE(says(launch, "the run goes on, after ")) << launch.output();

  ASSERT_EQ(kill(victim, SIGKILL), 0);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL) << launch.output();
  const Ran read = run("flight " + path("run") + " --last 2");
  EXPECT_EQ(read.code, 0) << read.output;
  expect_says(read.output, {"rank 0 of 4", "own work", " s a step over its last ", "rank 2 of 4",
                            concat("process ", victim), "rank 3 of 4", "At the end: rank 2 "});
  EXPECT_NE(run("flight " + path("run") + " --json").output.find("\"verdict\": \""), std::string::npos);
  std::filesystem::remove(path("run/flight/rank_0001"));
  expect_says(run("flight " + path("run")).output,
              {"rank 3 of 4", "There is no record of rank 1 of 4: it never began"});
}

TEST_F(Flight, a_good_end_leaves_no_records_and_reading_none_says_so) {
  EXPECT_EQ(launch(2, "").code, 0);
  EXPECT_FALSE(std::filesystem::exists(path("run/flight")));
  const Ran read = run("flight " + path("run"));
  EXPECT_EQ(read.code, 8);
  expect_says(read.output, {path("run"), "holds no flight records", "flight_record"});
}

// Signals that come while products are computed do no harm: generated code may use the heap as its stack.
TEST_F(Flight, whoever_asks_is_answered_and_asking_harms_nothing) {
  Background launch = running(1, {"model.params.hidden_size=256", "dataset.params.seq_length=16"});
  ASSERT_EQ(kill(launch.pid(), SIGUSR2), 0);
  EXPECT_TRUE(says(launch, "asked where the run is: rank 0 ")) << launch.output();
  const int rank = pid_of_rank(0);
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(kill(rank, SIGUSR2), 0) << launch.output();
    let_pass(0.004);  // Waits: signals come at moments that differ
  }
  ASSERT_EQ(kill(launch.pid(), SIGTERM), 0);
  EXPECT_EQ(launch.wait(), 128 + SIGTERM) << launch.output();
}

}  // namespace
}  // namespace drivetrain::test
