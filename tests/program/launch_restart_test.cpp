// Ranks that are killed in a launch that may restart: the run goes on by itself, with the bits of one that lost nobody,
// on fewer ranks where one fails again and again; and what such a launch leaves alone. Runs stand at gates
// (deed.h) until their ranks are killed, so that none is over before.
#include "program/background.h"

namespace drivetrain::test {
namespace {

class LaunchRestart : public ProgramTest {
 protected:
  LaunchRestart() { std::filesystem::create_directory(path("gates")); }
  Background start(const std::vector<std::string>& options, const std::vector<std::string>& sets) const {
    std::vector<std::string> words{program(),
                                   "launch",
                                   path("tiny.json"),
                                   "--plugin-path",
                                   DRIVETRAIN_MISDEEDS_DIR,
                                   "--set",
                                   R"(strategy={"type": "misdeed", "params": {"gates": ")" + path("gates") + "\"}}"};
    words.insert(words.end(), options.begin(), options.end());
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return Background(folder(), words);
  }
  // Before this step the run waits. Once a rank is killed, its gate is opened: the others then miss it.
  void close_gate(int64_t step) const { write(concat("gates/", step), ""); }
  void open_gate(int64_t step) const { std::filesystem::remove(path(concat("gates/", step))); }
  bool comes_to_step(Background& launch, size_t step) const {
    return eventually([&] { return lines_of(path("b/metrics.jsonl")) + 1 >= step || launch.ended(); }) &&
           !launch.ended();
  }
  static std::string every(int steps) {
    return concat(R"(checkpoint_policy=[{"type": "every", "params": {"steps": )", steps, R"(, "keep": 2}}])");
  }
  // Kills that rank once it is another process than `before`. Returns which; 0: the launch ended.
  int kill_rank(Background& launch, int rank, int before = 0) const {
    int pid = 0;
    eventually([&] {
      try {
        pid = pid_of_rank(path("tiny.json"), rank);
      } catch (const std::runtime_error&) {
        pid = 0;
      }
      return (pid != 0 && pid != before) || launch.ended();
    });
    if (launch.ended() || pid == 0) return 0;
    EXPECT_EQ(kill(pid, SIGKILL), 0);
    return pid;
  }
  // The newest complete checkpoint of the run in folder `b`, by its step; 0: none.
  int64_t newest_step() const {
    int64_t newest = 0;
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(path("b/checkpoints"), absent))
      if (const std::string name = entry.path().filename(); name.starts_with("step-"))
        newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
    return newest;
  }
  void expect_same_run(const std::string& a, const std::string& b) const {
    EXPECT_EQ(curve(a), curve(b));
    EXPECT_EQ(final_weights(a), final_weights(b));
  }
};

TEST_F(LaunchRestart, a_run_goes_on_from_its_newest_checkpoint_with_the_same_bits) {
  const std::vector<std::string> sets{"train_steps=24", "threads=1", every(4)};
  Background whole = start({"-n", "2"}, {sets[0], sets[1], sets[2], "output_dir=a"});
  ASSERT_EQ(whole.wait(), 0) << whole.output();
  close_gate(11), close_gate(19);
  Background launch = start({"-n", "2", "--max-restarts", "1"}, {sets[0], sets[1], sets[2], "output_dir=b"});
  // Any rank, again and again: each time the run has got further.
  int before = 0;
  for (const int64_t step : {11, 19}) {
    ASSERT_TRUE(eventually([&] { return newest_step() >= step - 3 || launch.ended(); })) << launch.output();
    before = kill_rank(launch, step == 11 ? 1 : 0, before);
    ASSERT_NE(before, 0) << launch.output();
    open_gate(step);
  }
  EXPECT_EQ(launch.wait(), 0) << launch.output();
  expect_says(launch.output(),
              {"rank 1 failed first: killed by signal 9", "drivetrain launch: restart 1 of 1 in 0.2 s, from checkpoint",
               "goes on from checkpoint step-", "rank 0 failed first: killed by signal 9",
               "drivetrain launch: restart 1 of 1 in 0.2 s, from checkpoint", "goes on from checkpoint step-"});
  expect_same_run("a", "b");
  expect_nothing_half_written();
}

TEST_F(LaunchRestart, a_run_without_a_checkpoint_begins_again) {
  Background whole = start({"-n", "2"}, {"train_steps=20", "output_dir=a"});
  ASSERT_EQ(whole.wait(), 0) << whole.output();
  close_gate(10);
  Background launch = start({"-n", "2", "--max-restarts", "2"}, {"train_steps=20", "output_dir=b"});
  ASSERT_TRUE(comes_to_step(launch, 10)) << launch.output();
  ASSERT_NE(kill_rank(launch, 1), 0) << launch.output();
  open_gate(10);
  EXPECT_EQ(launch.wait(), 0) << launch.output();
  expect_says(launch.output(), {"restart 1 of 2 in 0.2 s, from the beginning", "it begins again"});
  expect_same_run("a", "b");
  expect_nothing_half_written();
}

TEST_F(LaunchRestart, a_rank_that_fails_again_and_again_is_left_out) {
  close_gate(12), close_gate(19);  // until rank 3 has failed twice, there is no newer checkpoint
  Background launch = start({"--max-restarts", "3", "--elastic", "1:4"},
                            {"train_steps=40", "output_dir=b", "steps_per_print=20", every(10)});
  ASSERT_TRUE(eventually([&] { return newest_step() >= 10 || launch.ended(); })) << launch.output();
  const int first = kill_rank(launch, 3);
  ASSERT_NE(first, 0) << launch.output();
  open_gate(12);
  ASSERT_NE(kill_rank(launch, 3, first), 0) << launch.output();
  open_gate(19);
  EXPECT_EQ(launch.wait(), 0) << launch.output();
  // 4 sequences in a step have no share for each of 3 ranks.
  expect_says(launch.output(), {"restart 1 of 3", "rank 3 failed twice in a row without a newer checkpoint",
                                "goes on with 2 ranks instead of 4; 3 ranks: ", "train_batch_size",
                                "restart in 0.2 s, from checkpoint step-", "goes on from checkpoint step-"});
  const std::vector<Value> steps = read_metrics(path("b"));
  ASSERT_EQ(steps.size(), 40u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].find("step")->as_int(), static_cast<int64_t>(i) + 1);
    EXPECT_EQ(steps[i].find("tokens")->as_int(), 4 * 8);
  }
}

TEST_F(LaunchRestart, sigusr1_to_the_launcher_saves_and_asks_to_be_started_again) {
  Background launch = start({"-n", "2", "--max-restarts", "1"},
                            {"train_steps=100000000", "output_dir=b", "checkpoint_policy=on_signal"});
  ASSERT_TRUE(launch.wait_for_file(path("b/metrics.jsonl"))) << launch.output();
  launch.signal(SIGUSR1);
  EXPECT_EQ(launch.wait(), 75) << launch.output();
  EXPECT_EQ(newest_step(), static_cast<int64_t>(read_metrics(path("b")).size()));
  EXPECT_EQ(launch.output().find("restart 1"), std::string::npos) << launch.output();
}

TEST_F(LaunchRestart, what_another_start_would_not_mend_is_told_once) {
  const Ran wrong = run("launch -n 2 " + path("tiny.json") + " --max-restarts 2 --set no_such_key=1");
  EXPECT_EQ(wrong.code, 2) << wrong.output;
  expect_says(wrong.output, {"no_such_key", "drivetrain launch: no restart: rank ", "exit 2"});
  EXPECT_EQ(wrong.output.find("restart 1"), std::string::npos) << wrong.output;
}

TEST_F(LaunchRestart, the_run_of_another_launch_stays_as_it_is) {
  ASSERT_EQ(train("--set output_dir=b").code, 0);
  const std::string before = file_bytes(path("b/metrics.jsonl"));
  // Not even where the environment names it: that is of another launch too.
  const Ran refused = run("launch -n 2 " + path("tiny.json") + " --max-restarts 2 --set output_dir=b",
                          "DRIVETRAIN_BEGUN_FOLDER=" + path("b"));
  EXPECT_EQ(refused.code, 2) << refused.output;
  expect_says(refused.output, {"holds a run already", "no restart"});
  EXPECT_EQ(file_bytes(path("b/metrics.jsonl")), before);
}

}  // namespace
}  // namespace drivetrain::test
