// Ranks that do not go on: stopped by a signal or idle. The launch ends, says which rank it was and leaves nothing.
#include <sys/resource.h>

#include "base/rank_variables.h"
#include "launch/activity.h"
#include "launch/open_files.h"
#include "support/launch_fixture.h"

namespace drivetrain::program {
namespace {

class LateRanksTest : public LaunchTest {
 protected:
  LateRanksTest() { request_.deadlines.stopped_s = scaled(0.3); }
  // What ended a rank is told; all other time-outs are a minute and more.
  void expect_end(int code) {
    EXPECT_EQ(finish(), code) << err();
    expect_all_gone();
  }
};

TEST_F(LateRanksTest, one_that_is_stopped_while_the_others_are_done_is_named_and_ended) {
  request_.ranks = 3;
  start("[ $RANK = 1 ] && echo $$ >> $D/pids && kill -STOP $$; exit 0");
  expect_end(5);
  EXPECT_EQ(count_of("rank 1 is stopped by signal 19", err()), 2u) << err();
  EXPECT_EQ(count_of("rank 1 failed first: stopped by signal 19", err()), 1u) << err();
}

TEST_F(LateRanksTest, one_that_is_stopped_is_the_cause_and_not_those_that_lost_it) {
  request_.ranks = 4, request_.deadlines.peers_s = kNoTimeout;
  start(
      "echo $$ >> $D/pids; [ $RANK = 0 ] && { echo $$ > $D/pid0; kill -STOP $$; }\n"
      "until_it stopped $D/pid0; echo \"drivetrain: error: rank 0 did not come\" >&2; exit 5");
  expect_end(5);
  EXPECT_EQ(count_of("rank 0 failed first: stopped by signal 19", err()), 1u) << err();
  EXPECT_EQ(count_of("rank 0 did not come", err()), 1u) << err();
  EXPECT_EQ(count_of("2 other ranks said the same as rank 1", err()), 1u) << err();
}

// Its peers cannot end without it, as in a call to what it serves.
TEST_F(LateRanksTest, one_that_is_stopped_does_not_keep_those_that_said_their_error) {
  request_.deadlines.peers_s = kNoTimeout;
  start(
      "echo $$ >> $D/pids; [ $RANK = 0 ] && { echo $$ > $D/pid0; kill -STOP $$; }\n"
      "until_it stopped $D/pid0; echo \"drivetrain: error: rank 0 did not come\" >&2\n"
      "until_it gone $D/pid0; exit 5");
  expect_end(5);
  EXPECT_EQ(count_of("rank 0 failed first: stopped by signal 19", err()), 1u) << err();
}

// A hook that sleeps: nothing stopped it, and it is not in the call in which the others waited for it.
TEST_F(LateRanksTest, one_that_hangs_while_all_others_lost_it_is_the_cause) {
  request_.ranks = 3;
  request_.deadlines.peers_s = scaled(1);
  start(
      "echo $$ >> $D/pids; all_up; [ $RANK = 1 ] && idle\n"
      "echo \"drivetrain: error: rank 1 did not come\" >&2; exit 5");
  expect_end(5);
  EXPECT_EQ(count_of("rank 1 failed first: did not go on while the others waited for it", err()), 1u) << err();
}

TEST_F(LateRanksTest, one_that_ended_well_too_early_is_told_beside_those_that_lost_it) {
  request_.ranks = 2;
  start(
      "[ $RANK = 1 ] && { echo $$ > $D/pid1; exit 0; }\n"
      "until_it gone $D/pid1; echo \"drivetrain: error: rank 1 died\" >&2; exit 5");
  expect_end(5);
  EXPECT_EQ(count_of("rank 1 had ended before that, with exit 0", err()), 1u) << err();
}

TEST_F(LateRanksTest, one_that_said_its_error_and_does_not_end_is_ended) {
  request_.deadlines.peers_s = scaled(1);
  start("trap '' TERM; echo $$ >> $D/pids; all_up; echo \"drivetrain: error: loss is nan\" >&2; idle");
  expect_end(5);
  EXPECT_EQ(count_of("did not end after its error", err()), 3u) << err();
}

TEST_F(LateRanksTest, one_that_said_its_error_and_ends_when_it_is_told_keeps_its_code) {
  start(
      "[ $RANK = 0 ] && { until_it test -e $D/said; exit 5; }; trap 'exit 7' TERM; echo $$ >> $D/pids\n"
      "echo \"drivetrain: error: loss is nan\" >&2; echo > $D/said; idle");
  expect_end(7);
  EXPECT_EQ(count_of("rank 1 failed first: did not end after its error, then exit 7 (numeric", err()), 1u) << err();
}

TEST_F(LateRanksTest, one_that_failed_otherwise_is_the_cause_beside_one_that_is_stopped) {
  start("[ $RANK = 0 ] && { echo $$ > $D/pid0; kill -STOP $$; }; until_it stopped $D/pid0; exit 7");
  expect_end(7);
  EXPECT_EQ(count_of("rank 1 failed first: exit 7", err()), 1u) << err();
}

TEST_F(LateRanksTest, one_that_is_stopped_and_continued_may_end) {
  start(
      "[ $RANK = 1 ] && { echo $$ > $D/pid1; kill -STOP $$; until_it grep -q 'rank 1 goes on' $D/err; exit 0; }\n"
      "until_it grep -q 'rank 1 is stopped' $D/err; kill -CONT $(cat $D/pid1); exit 0");
  expect_end(0);
  EXPECT_EQ(count_of("rank 1 goes on", err()), 1u) << err();
  EXPECT_EQ(count_of("failed", err()), 0u) << err();
}

TEST_F(LateRanksTest, a_signal_to_the_launcher_ends_ranks_that_are_stopped) {
  start("echo $$ >> $D/pids; kill -STOP $$; exit 0");
  ASSERT_TRUE(eventually([&] { return count_of(" is stopped by signal 19", err()) == 2; }));
  kill(launcher_, SIGTERM);
  expect_end(5);
}

TEST_F(LateRanksTest, one_that_does_nothing_while_the_others_are_done_is_named_and_ended) {
  request_.deadlines.idle_s = 0.5;
  start("[ $RANK = 0 ] && { await pids; exit 0; }; trap '' TERM; echo $$ >> $D/pids; read < <(hold)");
  expect_end(5);
  EXPECT_EQ(count_of("rank 1 failed first: did nothing for 0.5 s while another rank was done (it is asleep)", err()),
            1u)
      << err();
}

TEST_F(LateRanksTest, one_that_works_while_the_others_are_done_may_take_its_time) {
  request_.deadlines.idle_s = scaled(1.5);
  start("[ $RANK = 0 ] && exit 0; end=$((SECONDS + " + std::to_string(test::whole_seconds(3)) +
        ")); while [ $SECONDS -lt $end ]; do :; done; exit 0");
  expect_end(0);
}

constexpr const char* kBusy = "trap '' TERM; echo $$ >> $D/pids; while :; do :; done";

TEST_F(LateRanksTest, one_that_computes_for_ever_is_ended_by_the_deadline_after_the_first_end) {
  request_.deadlines.working_s = 1;
  start(std::string("[ $RANK = 0 ] && exit 0; ") + kBusy);
  expect_end(5);
  EXPECT_EQ(count_of("rank 1 failed first: did not end within 1 s after another rank was done", err()), 1u) << err();
  EXPECT_EQ(count_of("(it computes: ", err()), 2u) << err();
}

TEST_F(LateRanksTest, one_that_computes_for_ever_does_not_survive_the_signal_for_long) {
  request_.deadlines.working_s = 1;
  start(kBusy);
  ASSERT_TRUE(eventually([&] { return pids().size() == 2; }));
  kill(launcher_, SIGTERM);
  expect_end(5);
  EXPECT_EQ(count_of("did not end within 1 s after the signal to end", err()), 3u) << err();
}

TEST_F(LateRanksTest, once_all_were_told_and_one_is_done_the_others_have_less_time) {
  request_.deadlines.told_s = 1;
  start(std::string("[ $RANK = 0 ] && { trap 'exit 0' TERM; echo $$ >> $D/pids; idle; }; ") + kBusy);
  ASSERT_TRUE(eventually([&] { return pids().size() == 2; }));
  kill(launcher_, SIGTERM);
  expect_end(5);
  EXPECT_EQ(count_of("rank 1 failed first: did not end within 1 s after the signal to end", err()), 1u) << err();
}

TEST_F(LateRanksTest, one_that_writes_files_may_take_as_long_as_it_does) {
  request_.deadlines.working_s = scaled(1.5);
  start("[ $RANK = 0 ] && exit 0; end=$((SECONDS + " + std::to_string(test::whole_seconds(3)) +
        "))\n"
        "until [ $SECONDS -ge $end ]; do head -c 40000000 /dev/zero > $D/large; $NAP; done; exit 0");
  expect_end(0);
}

TEST(FileWork, only_reading_and_writing_count_and_a_disk_gets_more_time) {
  FileWork files;
  Activity now;
  EXPECT_EQ(files.quiet_seconds(now, 10), 0);
  now.cpu_ticks += 1000, now.io_bytes += 1 << 20;
  EXPECT_EQ(files.quiet_seconds(now, 20), 10);
  now.waits_for_disk = true;
  EXPECT_EQ(files.quiet_seconds(now, 20), 1);
  now.waits_for_disk = false, now.io_bytes += 16 << 20;
  EXPECT_EQ(files.quiet_seconds(now, 30), 0);
  now.state = 'S';
  EXPECT_EQ(files.text(now).find("computes: "), 0u) << files.text(now);
  EXPECT_NE(files.text(now).find("asleep"), std::string::npos) << files.text(now);
}

TEST(Stillness, computing_and_writing_are_work_and_a_disk_gets_more_time) {
  Stillness still;
  Activity now;
  EXPECT_EQ(still.seconds(now, 10, 60), 0);
  EXPECT_EQ(still.seconds(now, 15, 60), 5);
  now.cpu_ticks += 1, now.io_bytes += 100;  // a look at a clock, a line of a log
  EXPECT_EQ(still.seconds(now, 20, 60), 10);
  now.waits_for_disk = true;
  EXPECT_EQ(still.seconds(now, 20, 60), 1);
  now.waits_for_disk = false, now.io_bytes += 1 << 20;
  EXPECT_EQ(still.seconds(now, 30, 60), 0);
  now.cpu_ticks += 1000;
  EXPECT_EQ(still.seconds(now, 40, 60), 0);
  now.cpu_ticks += sysconf(_SC_CLK_TCK) / 10;  // of one second's wait that is work
  EXPECT_EQ(still.seconds(now, 45, 60), 5);
  EXPECT_EQ(still.seconds(now, 45, 1), 0);
}

// A scheduler signals every process of a job. SIGUSR2 asks where the ranks are; it is not the end of the run.
TEST_F(LateRanksTest, a_question_that_came_to_every_process_ends_nothing) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_IGN);
    StartOrder order;
    order.world = 2, order.slots = {0, 1}, order.command = {"/bin/true"}, order.signals_reach_ranks = true;
    const std::vector<RankEnd> ends = ends_told_by_agent(order, [] { raise(SIGUSR2); });
    _exit(ends.size() == 2 ? launch_code(ends, 0) : 100);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(LateRanksTest, too_few_open_files_are_told_at_once_with_the_figure) {
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit few = {12, 12};
    setrlimit(RLIMIT_NOFILE, &few);
    request_.command = {"/bin/true"};
    request_.err = open(errors_to_.c_str(), O_WRONLY | O_CREAT, 0600);
    _exit(launch(request_));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 8);
  EXPECT_EQ(open_files_wanted(2, 300) - open_files_wanted(2), 900);  // three streams of each ssh
  for (const char* part : {"2 ranks: each process needs 52 open files", "12 are allowed", "ulimit -n 52"})
    EXPECT_EQ(count_of(part, err()), 1u) << err();
}

TEST_F(LateRanksTest, too_few_processes_are_told_with_the_rank_and_the_figure) {
  request_.err = open(errors_to_.c_str(), O_WRONLY | O_CREAT, 0600);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit few = {1, 1};
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(77);  // root has no such limit
    setrlimit(RLIMIT_NPROC, &few);
    request_.command = {"/bin/true"};
    _exit(launch(request_));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "another user cannot be had";
  EXPECT_EQ(WEXITSTATUS(status), 8);
  for (const char* part : {"error: rank 0 could not be started", "may have 1 processes and threads", "`ulimit -u`"})
    EXPECT_EQ(count_of(part, err()), 1u) << err();
}

// Agents whose launchers are gone; the marked process stands for what an agent's ranks have started. When the one that
// may stand for a second has been killed, the one that may stand for ever is still there.
TEST_F(LateRanksTest, who_guards_an_agent_kills_it_where_it_is_stopped_and_what_it_has_started) {
  setenv("D", folder_.c_str(), 1);
  const auto stopped_agent = [](double may_stand_s) {
    const std::string id = new_launch_id();
    const pid_t agent = fork();
    if (agent == 0) {
      const Guardian guardian(id, may_stand_s);
      setenv(RankStart::kLaunchId, id.c_str(), 1);
      if (fork() == 0) execl("/bin/bash", "bash", "-c", (kShell + "echo $$ >> $D/pids; hold").c_str(), nullptr);
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    waitpid(agent, &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
    return agent;
  };
  const pid_t for_ever = stopped_agent(0), for_a_second = stopped_agent(1);
  ASSERT_TRUE(eventually([&] { return pids().size() == 2u; }));
  int status = 0;
  waitpid(for_a_second, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(waitpid(for_ever, &status, WNOHANG), 0);
  kill(for_ever, SIGKILL);
  waitpid(for_ever, &status, 0);
  expect_all_gone();
}

TEST_F(LateRanksTest, the_own_limit_of_open_files_is_raised_where_that_is_allowed) {
  const rlimit few = {40, 100};
  start({"/bin/bash", "-c", "true"});
  EXPECT_EQ(finish(), 0);
  launcher_ = fork();
  if (launcher_ == 0) {
    setrlimit(RLIMIT_NOFILE, &few);
    request_.command = {"/bin/bash", "-c", "[ $RANK = 1 ] || ulimit -n"};
    dup2(open((folder_ + "/out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDOUT_FILENO);
    _exit(launch(request_));
  }
  EXPECT_EQ(finish(), 0);
  EXPECT_EQ(out(), "52\n");
}

}  // namespace
}  // namespace drivetrain::program
