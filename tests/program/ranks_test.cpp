// Ranks that die, never come, disagree or are told to stop: the others end within seconds and say which.
#include <stdexcept>

#include "program/background.h"

namespace drivetrain::test {
namespace {

class Ranks : public ProgramTest {
 protected:
  std::vector<std::string> words(const std::string& command, const std::vector<std::string>& sets) const {
    std::vector<std::string> list = {program(), command, path("tiny.json")};
    for (const std::string& set : sets) list.insert(list.end(), {"--set", set});
    return list;
  }
  Background start(const Environment& environment, const std::vector<std::string>& sets) const {
    return Background(folder(), words("train", sets), environment);
  }
  // A run without an end, once it has made steps.
  Background running(int ranks) const {
    std::vector<std::string> list = words("launch", {"train_steps=100000000"});
    list.insert(list.end(), {"-n", std::to_string(ranks)});
    Background launch(folder(), list);
    EXPECT_TRUE(launch.wait_for_file(path("run/metrics.jsonl"))) << launch.output();
    return launch;
  }
  // The process of that rank, found by its environment.
  int pid_of_rank(int rank) const {
    const std::string wanted = concat('\0', "RANK=", rank, '\0');
    for (const int pid : processes_with(path("tiny.json"))) {
      const std::string variables = '\0' + file_bytes("/proc/" + std::to_string(pid) + "/environ");
      if (variables.find(wanted) != std::string::npos) return pid;
    }
    throw std::runtime_error(
        concat("no process of rank ", rank));  // not -1: kill() takes that for every process there is
  }
};

TEST_F(Ranks, a_rank_that_is_killed_is_named_by_the_others_within_seconds) {
  Background launch = running(4);
  const int victim = pid_of_rank(2);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  EXPECT_EQ(launch.wait(10), 128 + SIGKILL);
  const std::string said = launch.output();
  const std::string lost = concat("rank 2 (pid ", victim, ") died");
  for (const std::string who :
       {"\ndrivetrain: error: ", "[rank 1] drivetrain: error: ", "[rank 3] drivetrain: error: "})
    expect_says(said, {who, lost});
  expect_says(said, {"drivetrain launch: rank 2 failed first: killed by signal 9"});
  expect_nothing_half_written();
}

TEST_F(Ranks, rank_0_that_is_killed_is_named_too) {
  Background launch = running(2);
  ASSERT_EQ(kill(pid_of_rank(0), SIGKILL), 0);
  EXPECT_EQ(launch.wait(10), 128 + SIGKILL);
  expect_says(launch.output(), {"[rank 1] drivetrain: error: ", "rank 0 (pid ", ") died", "rank 0 failed first"});
}

TEST_F(Ranks, a_launcher_that_is_killed_takes_its_ranks_with_it) {
  Background launch = running(2);
  launch.signal(SIGKILL);
  EXPECT_EQ(launch.wait(10), 128 + SIGKILL);
  EXPECT_TRUE(wait_until(10, [&] { return processes_with(folder()).empty(); }));
}

TEST_F(Ranks, a_rank_that_never_arrives_is_named_by_rank_0) {
  Background rank = start(environment(0, free_port()), {"rendezvous_timeout_s=1"});
  EXPECT_EQ(rank.wait(20), 5);
  expect_says(rank.output(), {"rank 1 of 2 did not arrive within 1 s", "MASTER_ADDR, MASTER_PORT and WORLD_SIZE"});
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Ranks, a_rank_0_that_never_arrives_is_named_with_its_address) {
  const std::string port = free_port();
  Background rank = start(environment(1, port), {"rendezvous_timeout_s=1"});
  EXPECT_EQ(rank.wait(20), 5);
  expect_says(rank.output(), {"rank 1", "rank 0 did not open 127.0.0.1:" + port, "within 1 s"});
}

TEST_F(Ranks, ranks_with_different_configs_are_told_before_the_first_collective) {
  const std::string port = free_port();
  Background first = start(environment(0, port), {"optimizer.lr=1e-3"});
  Background second = start(environment(1, port), {"optimizer.lr=1e-4"});
  EXPECT_EQ(first.wait(20), 2);
  EXPECT_EQ(second.wait(20), 2);
  for (const Background* rank : {&first, &second})
    expect_says(rank->output(), {"not started alike", "config.optimizer.params.lr", "0.001 on rank 0",
                                 "1e-04 on rank 1", "same configuration file"});
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Ranks, a_signal_ends_the_run_after_its_step_with_final_weights) {
  for (const int number : {SIGINT, SIGTERM}) {
    for (const int ranks : {1, 2}) {
      Background launch = running(ranks);
      launch.signal(number);
      EXPECT_EQ(launch.wait(15), 128 + number) << launch.output();
      const size_t steps = read_metrics(path("run")).size();
      expect_says(launch.output(), {concat("stopped after step ", steps, " of 100000000 by signal ", number)});
      expect_says(file_bytes(path("run/log.txt")), {"final weights in ", concat("stopped after step ", steps)});
      EXPECT_FALSE(final_weights("run").empty());
      expect_nothing_half_written();
      std::filesystem::remove_all(path("run"));
    }
  }
}

TEST_F(Ranks, a_signal_to_a_single_process_does_the_same) {
  Background train = start({}, {"train_steps=100000000"});
  ASSERT_TRUE(train.wait_for_file(path("run/metrics.jsonl"))) << train.output();
  train.signal(SIGTERM);
  EXPECT_EQ(train.wait(15), 128 + SIGTERM) << train.output();
  EXPECT_FALSE(final_weights("run").empty());
}

TEST_F(Ranks, a_signal_to_one_rank_stops_all_of_them_at_the_same_step) {
  Background launch = running(2);
  ASSERT_EQ(kill(pid_of_rank(1), SIGTERM), 0);
  EXPECT_EQ(launch.wait(15), 128 + SIGTERM) << launch.output();
  EXPECT_FALSE(final_weights("run").empty());
}

TEST_F(Ranks, malformed_launcher_variables_are_named_with_their_value) {
  const std::string command = "train " + path("tiny.json");
  const auto refused = [&](const std::string& environment, const std::vector<std::string>& parts) {
    expect_refused(command, 2, parts, environment);
  };
  refused("RANK=x WORLD_SIZE=2", {"environment variable RANK=x", "wanted an integer"});
  refused("RANK=0 WORLD_SIZE=0", {"environment variable WORLD_SIZE=0", "wanted an integer from 1"});
  refused("RANK=1", {"RANK=1 is set but WORLD_SIZE is not", "set both, or neither"});
  refused("WORLD_SIZE=2", {"WORLD_SIZE=2 is set but RANK is not"});
  refused("RANK=2 WORLD_SIZE=2", {"RANK=2 and WORLD_SIZE=2 contradict each other", "0 to 1"});
  refused("RANK=0 WORLD_SIZE=2", {"MASTER_ADDR is not set", "127.0.0.1"});
  refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=99999", {"MASTER_PORT=99999", "from 1 to 65535"});
  refused("DRIVETRAIN_LOG=loud", {"DRIVETRAIN_LOG is \"loud\"", "debug, info, warning or error"});
}

}  // namespace
}  // namespace drivetrain::test
