// Launches that restart what failed, with shell scripts for ranks. $0 and $1 are what the launcher adds to their
// command.
#include <set>

#include "support/launch_fixture.h"

namespace drivetrain::program {
namespace {

class RestartsTest : public LaunchTest {
 protected:
  RestartsTest() {
    request_.max_restarts = 2;
    request_.first_pause_s = 0.02;
    request_.deadlines.peers_s = scaled(0.1);
  }
  // What scripts use: $n, which attempt this is; `point TAG`, which rank 0 tells the launcher.
  int run(const std::string& script) { return LaunchTest::run(kWords + script); }
  void start(const std::string& script) { LaunchTest::start(kWords + script); }

  static constexpr const char* kWords =
      "echo $$ >> $D/pids\n"
      "point() { [ $RANK = 0 ] && printf '%s %s\\0' \"$1\" $D/my\\ run >&$DRIVETRAIN_RESTART_POINTS_FD; }\n"
      "if [ $RANK = 0 ]; then echo \"$0 $1 $WORLD_SIZE ${DRIVETRAIN_BEGUN_FOLDER:-none}\" >> $D/attempts\n"
      "wc -l < $D/attempts > $D/n; mv $D/n $D/n-${DRIVETRAIN_RUN_TOKEN:0:16}; fi\n"
      "await n-${DRIVETRAIN_RUN_TOKEN:0:16}\n"
      "n=$(cat $D/n-${DRIVETRAIN_RUN_TOKEN:0:16})\n";
  std::vector<std::string> attempts() const {
    std::vector<std::string> lines;
    std::istringstream text(content(folder_ + "/attempts"));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }
  using Lines = std::vector<std::string>;
};

TEST_F(RestartsTest, without_the_option_nothing_is_started_again) {
  request_.max_restarts = 0;
  EXPECT_EQ(run("all_up; [ $RANK = 0 ] && hold; kill -9 $$"), 137);
  EXPECT_EQ(attempts().size(), 1u);
  EXPECT_EQ(count_of("restart", err()), 0u) << err();
}

TEST_F(RestartsTest, a_run_that_lost_a_rank_is_started_again_with_a_port_and_a_secret_of_its_own) {
  EXPECT_EQ(run("[ $RANK = 0 ] && echo $MASTER_PORT $DRIVETRAIN_RUN_TOKEN >> $D/meet\n"
                "until_it has_lines $n $D/meet; [ $n = 2 ] && exit 0; [ $RANK = 0 ] && hold; kill -9 $$"),
            0);
  const std::string said = err();
  EXPECT_LT(said.find("rank 1 failed first: killed by signal 9"), said.find("restart 1 of 2 in 0.02 s")) << said;
  EXPECT_EQ(count_of("restart", said), 1u) << said;
  std::istringstream words(content(folder_ + "/meet"));
  std::set<std::string> distinct;
  for (std::string word; words >> word;) distinct.insert(word);
  EXPECT_EQ(distinct.size(), 4u) << content(folder_ + "/meet");
  expect_all_gone();
}

TEST_F(RestartsTest, it_is_told_where_to_go_on) {
  request_.max_restarts = 1;
  request_.resume = "never";
  // Not begun; begun without a checkpoint; then one more checkpoint in each attempt.
  EXPECT_EQ(run("[ $RANK = 1 ] && hold\n"
                ""
                "[ $n = 2 ] && { point ''; point step-1; }; [ $n = 3 ] && { point step-1; point step-2; }\n"
                "[ $n = 4 ] && exit 7; kill -9 $$"),
            7);
  EXPECT_EQ(attempts(),
            (Lines{"--resume never 2 none", "--resume never 2 none", "--resume auto 2 none", "--resume auto 2 none"}));
  const std::string said = err();
  for (const char* part : {"as the first time", "from checkpoint step-1", "from checkpoint step-2"})
    EXPECT_EQ(count_of("restart 1 of 1 in 0.02 s, " + std::string(part), said), 1u) << said;
  EXPECT_EQ(count_of("no restart: rank 0: exit 7 (numeric failure)", said), 1u) << said;
}

TEST_F(RestartsTest, a_run_without_a_checkpoint_may_begin_again_in_the_folder_that_this_launch_began) {
  setenv("DRIVETRAIN_BEGUN_FOLDER", "of another launch", 1);
  EXPECT_EQ(run("[ $RANK = 1 ] && hold; point ''; kill -9 $$"), 137);
  unsetenv("DRIVETRAIN_BEGUN_FOLDER");
  const std::string again = "--resume auto 2 " + folder_ + "/my run";
  EXPECT_EQ(attempts(), (Lines{"/bin/bash  2 none", again, again}));
  EXPECT_EQ(count_of("from the beginning", err()), 2u) << err();
}

TEST_F(RestartsTest, a_run_that_began_with_a_chosen_checkpoint_goes_on_from_its_own) {
  request_.resume = "step-4";
  EXPECT_EQ(run("[ $n = 3 ] && exit 0; [ $RANK = 1 ] && hold\n"
                "point step-4; [ $n = 2 ] && point step-6; kill -9 $$"),
            0);
  EXPECT_EQ(attempts(), (Lines{"--resume step-4 2 none", "--resume step-4 2 none", "--resume step-6 2 none"}));
}

TEST_F(RestartsTest, it_gives_up_with_the_first_cause_of_those_without_progress) {
  EXPECT_EQ(run("[ $RANK = 1 ] && hold\n"
                "point step-1\n"
                "[ $n = 1 ] && kill -11 $$; [ $n = 2 ] && { point step-2; kill -9 $$; }; kill -6 $$"),
            137);
  const std::string said = err();
  EXPECT_EQ(attempts().size(), 4u);
  EXPECT_EQ(count_of("gives up after 2 restarts without a newer checkpoint; the first failure was rank 0: killed by "
                     "signal 9",
                     said),
            1u)
      << said;
  EXPECT_EQ(count_of("; the last rank 0: killed by signal 6", said), 1u) << said;
  expect_all_gone();
}

TEST_F(RestartsTest, a_rank_that_is_lost_when_the_run_is_done_is_no_reason_to_start_it_again) {
  EXPECT_EQ(
      run("[ $RANK = 0 ] && { point x; printf 'done\\0' >&$DRIVETRAIN_RESTART_POINTS_FD; echo > $D/told; exit 0; }\n"
          "await told; kill -9 $$"),
      0);
  EXPECT_EQ(attempts().size(), 1u);
  EXPECT_EQ(count_of("rank 1 failed first: killed by signal 9", err()), 1u) << err();
  EXPECT_EQ(count_of("the run was done before that", err()), 1u) << err();
}

TEST_F(RestartsTest, what_another_start_would_not_mend_is_not_started_again) {
  for (const int code : {2, 3, 6, 7, 8, 75, 143}) {
    std::filesystem::remove(folder_ + "/attempts");
    EXPECT_EQ(run("exit " + std::to_string(code)), code);
    EXPECT_EQ(attempts().size(), 1u) << code;
    EXPECT_EQ(count_of(code > 8 ? "; it was asked to end" : "; it would fail again", err()), 1u) << err();
    std::filesystem::remove(folder_ + "/err");
  }
}

TEST_F(RestartsTest, a_signal_to_the_launcher_ends_the_run_and_its_restarts) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    std::filesystem::remove(folder_ + "/attempts");
    for (const char* left : {"/pids", "/ready0", "/ready1"}) std::filesystem::remove(folder_ + left);
    start("trap 'exit 75' INT TERM USR1; touch $D/ready$RANK; idle");
    ASSERT_TRUE(eventually([&] {
      return pids().size() == 2 && std::filesystem::exists(folder_ + "/ready0") &&
             std::filesystem::exists(folder_ + "/ready1");
    }));
    kill(launcher_, signal);
    EXPECT_EQ(finish(), 75) << err();
    EXPECT_EQ(attempts().size(), 1u);
    expect_all_gone();
  }
}

TEST_F(RestartsTest, a_signal_between_two_attempts_asks_to_be_started_again_if_there_is_a_checkpoint) {
  request_.first_pause_s = request_.longest_pause_s = 1000;
  for (const std::string tag : {"", "step-1"})
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
      std::filesystem::remove(folder_ + "/err");
      start("[ $RANK = 1 ] && hold; point '" + tag + "'; kill -9 $$");
      ASSERT_TRUE(eventually([&] { return count_of("restart 1 of 2", err()) == 1; }));
      kill(launcher_, signal);
      EXPECT_EQ(finish(), signal == SIGINT || tag.empty() ? 128 + signal : 75) << err();
    }
}

TEST_F(RestartsTest, after_sigusr1_a_batch_systems_sigterm_does_not_kill) {
  start("trap 'await go; echo saved; exit 75' USR1; touch $D/ready$RANK; idle");
  ASSERT_TRUE(eventually(
      [&] { return std::filesystem::exists(folder_ + "/ready0") && std::filesystem::exists(folder_ + "/ready1"); }));
  for (const int signal : {SIGUSR1, SIGUSR1, SIGTERM})
    kill(launcher_, signal), let_pass(0.1);  // Waits: two of one number that come at once are one
  std::ofstream(folder_ + "/go");
  EXPECT_EQ(finish(), 75);
  EXPECT_EQ(count_of("saved", out()), 2u) << out() << err();
}

// ---- fewer ranks ----

class ElasticTest : public RestartsTest {
 protected:
  ElasticTest() { request_.ranks = request_.most_ranks = 4, request_.least_ranks = 1; }
  // `plan`: what `--plan` does.
  int run(const std::string& plan, const std::string& script) {
    return LaunchTest::run("if [ \"$0\" = --plan ]; then echo $WORLD_SIZE >> $D/asked; " + plan + "; fi\n" + kWords +
                           script);
  }
  std::string asked() const { return content(folder_ + "/asked"); }
  static constexpr const char* kTwelve =
      "[ $((12 % WORLD_SIZE)) = 0 ] || { echo 'drivetrain: error: 12 sequences' >&2; echo '   do not divide' >&2; exit "
      "2; }\n"
      "echo '{\"batch\": {\"train_batch_size\": 12}}'; exit 0";
};

TEST_F(ElasticTest, a_rank_that_fails_twice_in_a_row_is_left_out) {
  request_.ranks = request_.most_ranks = 6;
  EXPECT_EQ(run(kTwelve, "[ $WORLD_SIZE = 6 ] || exit 0; [ $RANK = 2 ] && { point x; kill -9 $$; }; hold"), 0);
  EXPECT_EQ(asked(), "6\n5\n4\n");
  EXPECT_EQ(attempts().size(), 3u);
  const std::string said = err();
  EXPECT_EQ(count_of("rank 2 failed twice in a row without a newer checkpoint: goes on with 4 ranks instead of 6; "
                     "5 ranks: 12 sequences; do not divide\n",
                     said),
            1u)
      << said;
  EXPECT_EQ(count_of("restart 1 of 2 in 0.02 s", said), 1u) << said;
  EXPECT_EQ(count_of("restart in 0.02 s", said), 1u) << said;
  expect_all_gone();
}

TEST_F(ElasticTest, ranks_that_fail_once_each_are_not) {
  EXPECT_EQ(run(kTwelve, "[ $n -lt 3 ] && [ $RANK = $n ] && kill -9 $$; [ $n = 3 ] && exit 0; hold"), 0);
  EXPECT_EQ(asked(), "");
  EXPECT_EQ(attempts().size(), 3u);
}

TEST_F(ElasticTest, where_no_number_works_each_says_why_and_the_restarts_go_on_as_they_were) {
  EXPECT_EQ(run("[ $WORLD_SIZE = 4 ] && exit 0; echo \"drivetrain: error: no $WORLD_SIZE\" >&2; exit 2",
                "[ $RANK = 3 ] && kill -9 $$; hold"),
            137);
  EXPECT_EQ(attempts().size(), 3u);
  EXPECT_EQ(count_of("cannot go on with fewer than 4 ranks: 3 ranks: no 3; 2 ranks: no 2; 1 rank: no 1\n", err()), 1u)
      << err();
  EXPECT_EQ(count_of("gives up after 2 restarts", err()), 1u) << err();
}

TEST_F(ElasticTest, a_host_with_more_places_than_ranks_keeps_their_number) {
  request_.ranks = 3;
  EXPECT_EQ(run(kTwelve,
                "[ $RANK = 1 ] && [ $n != 3 ] && kill -9 $$\n"
                "[ $n = 3 ] && { echo \"gpus $CUDA_VISIBLE_DEVICES\"; exit 0; }; hold"),
            0);
  EXPECT_EQ(asked(), "");
  EXPECT_EQ(count_of("gpus 0,2,3\n", out()), 3u) << out() << err();
  EXPECT_EQ(count_of("goes on with 3 ranks in other places", err()), 1u) << err();
}

}  // namespace
}  // namespace drivetrain::program
