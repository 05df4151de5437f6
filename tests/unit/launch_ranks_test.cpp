// The launcher with real processes: shell scripts stand for ranks.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <regex>
#include <set>

#include "support/launch_fixture.h"

namespace drivetrain::program {
namespace {

TEST_F(LaunchTest, every_rank_is_told_its_place_and_other_ranks_lines_are_prefixed) {
  request_.ranks = 3;
  EXPECT_EQ(run("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:+port} "
                "${DRIVETRAIN_LISTEN_FD:+fd};"
                "echo problem $RANK >&2"),
            0);
  EXPECT_EQ(count_of("0 3 0 3 127.0.0.1 port fd\n", out()), 1u) << out();
  EXPECT_EQ(count_of("[rank 1] 1 3 1 3 127.0.0.1 port\n", out()), 1u) << out();
  EXPECT_EQ(count_of("[rank 2] 2 3 2 3 127.0.0.1 port\n", out()), 1u) << out();
  EXPECT_EQ(count_of("\nproblem 0\n", "\n" + err()), 1u) << err();
  EXPECT_EQ(count_of("[rank 1] problem 1\n", err()), 1u) << err();
}

// One that a batch system stopped, and that has saved, has not failed.
TEST_F(LaunchTest, a_rank_that_was_stopped_and_has_saved_is_said_to_have_ended) {
  request_.ranks = 2;
  EXPECT_EQ(run("[ $RANK = 1 ] && exit 75; idle"), 75) << err();
  EXPECT_EQ(count_of("rank 1 ended first: exit 75 (preempted)", err()), 1u) << err();
  EXPECT_EQ(count_of("failed", err()), 0u) << err();
}

TEST_F(LaunchTest, ranks_of_a_run_share_a_secret_that_no_command_line_shows) {
  std::set<std::string> secrets;
  for (int i = 0; i < 2; ++i) {
    request_.ranks = 2;
    EXPECT_EQ(
        run("echo $DRIVETRAIN_RUN_TOKEN > $D/secret$RANK; cat /proc/$PPID/cmdline /proc/$$/cmdline > $D/words$RANK"),
        0);
    const std::string secret = content(folder_ + "/secret0");
    EXPECT_TRUE(std::regex_match(secret, std::regex("[0-9a-f]{64}\n"))) << secret;
    EXPECT_EQ(content(folder_ + "/secret1"), secret);
    EXPECT_EQ(content(folder_ + "/words1").find(secret.substr(0, 64)), std::string::npos);
    secrets.insert(secret);
  }
  EXPECT_EQ(secrets.size(), 2u);  // a new one for each run
}

// As in an agent with many ranks and a config from a pipe.
TEST_F(LaunchTest, what_a_rank_inherits_makes_way_for_its_config) {
  constexpr int kNumber = 47;
  const auto memory = [](const char* text) {
    Descriptor file(memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(write(file.get(), text, strlen(text)), static_cast<ssize_t>(strlen(text)));
    return file;
  };
  const Descriptor config = memory("config"), given = memory("given "), out = memory("");
  ASSERT_EQ(fcntl(kNumber, F_GETFD), -1);
  const Descriptor held(dup3(given.get(), kNumber, O_CLOEXEC));
  const std::vector<std::string> command{"/bin/bash", "-c", "cat /dev/fd/$GIVEN /dev/fd/47"};
  sigset_t none;
  sigemptyset(&none);
  ProcessStart start{.command = &command, .environment = {}, .out = out.get(), .inherited = {{"GIVEN", kNumber}}};
  start.config = config.get(), start.config_number = kNumber, start.signal_mask = &none;
  int status = 0;
  waitpid(start_process(start), &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content("/proc/self/fd/" + std::to_string(out.get())), "given config");
}

TEST_F(LaunchTest, ranks_see_all_gpus_or_their_own_mig_instance) {
  for (const auto& [visible, said] : {std::pair{"MIG-a,MIG-b", "0 MIG-a\n[rank 1] 1 MIG-b\n"},
                                      std::pair{"GPU-a,GPU-b", "0 GPU-a,GPU-b\n[rank 1] 1 GPU-a,GPU-b\n"}}) {
    for (const char* file : {"/out", "/first"}) std::filesystem::remove(folder_ + file);
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    EXPECT_EQ(run("[ $RANK = 1 ] && await first; echo $RANK $CUDA_VISIBLE_DEVICES; "
                  "touch $D/first"),
              0);
    EXPECT_EQ(out(), said);
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(LaunchTest, the_ranks_of_one_host_meet_where_the_user_says) {
  int port = 0;
  { const Descriptor listener = listen_on_free_port(port); }
  request_.hosts.master_port = port, request_.hosts.master_addr = "127.0.0.2";
  EXPECT_EQ(run("echo $RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT ${DRIVETRAIN_RUN_TOKEN:+token}"),
            0);
  for (const char* rank : {"0", "1"})
    EXPECT_EQ(count_of(rank + (" of 2 2 127.0.0.2:" + std::to_string(port) + " token\n"), out()), 1u) << out() << err();
  const Descriptor taken = listen_on_free_port(request_.hosts.master_port);
  request_.hosts.master_addr = "127.0.0.1";
  EXPECT_EQ(run("touch $D/ran"), 5);
  EXPECT_EQ(count_of("Address already in use; without --master_port a free port is taken", err()), 1u) << err();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/ran"));
}

TEST_F(LaunchTest, a_folder_that_was_deleted_is_told_before_any_rank_starts) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder_ + "/gone");
  std::filesystem::current_path(folder_ + "/gone");
  std::filesystem::remove(folder_ + "/gone");
  EXPECT_EQ(run("touch $D/ran"), 8);
  std::filesystem::current_path(before);
  EXPECT_EQ(count_of("the current folder is not there any more", err()), 1u) << err();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/ran"));
}

TEST_F(LaunchTest, rank_0_is_told_which_rank_failed) {
  request_.deadlines.peers_s = kNoTimeout;
  EXPECT_EQ(run("if [ $RANK = 1 ]; then exit 3; fi; read line <&$DRIVETRAIN_NEWS_FD; echo \"news: $line\"; exit 5"), 3);
  EXPECT_EQ(count_of("news: rank 1 has ended: exit 3 (", out()), 1u) << out() << err();
  EXPECT_EQ(run("[ $RANK = 1 ] || { read line <&$DRIVETRAIN_NEWS_FD; echo \"news: $line.\"; }"), 0);
  EXPECT_EQ(count_of("news: rank 1 has ended: exit 0.", out()), 1u) << "it may not have come yet: " << out() << err();
}

TEST_F(LaunchTest, lines_of_several_ranks_do_not_mix_and_none_is_lost) {
  request_.ranks = 4;
  EXPECT_EQ(run("for i in {1..500}; do echo \"$RANK line $i ................................................\"; done; "
                "printf end"),
            0);
  std::istringstream lines(out());
  const std::regex whole("(\\[rank [123]\\] )?[0-3] line [0-9]+ \\.{48}|\\[rank [123]\\] end|end.*");
  size_t count = 0, prefixed = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_TRUE(std::regex_match(line, whole)) << line;
    prefixed += line.starts_with("[rank ");
  }
  EXPECT_GE(count, 2003u);
  EXPECT_GE(prefixed, 1502u);
}

TEST_F(LaunchTest, the_exit_code_of_a_single_rank_is_that_of_launch) {
  request_.ranks = 1;
  EXPECT_EQ(run("echo no such key >&2; exit 2"), 2);
  EXPECT_EQ(count_of("no such key", err()), 1u) << "it stands right above, so it is not quoted: " << err();
  EXPECT_EQ(count_of("rank 0 failed: exit 2 (usage or configuration) after ", err()), 1u) << err();
}

TEST_F(LaunchTest, the_first_failure_is_quoted_at_the_end_and_not_the_rank_that_lost_it) {
  request_.deadlines.peers_s = kNoTimeout;
  EXPECT_EQ(run("if [ $RANK = 0 ]; then echo lost rank 1 >&2; echo $$ > $D/pid0; exit 5; fi\n"
                "until_it gone $D/pid0; echo loss is nan >&2; exit 7"),
            7);
  const std::string text = err(), report = text.substr(text.find("drivetrain launch: "));
  EXPECT_TRUE(std::regex_search(report, std::regex("rank 1 failed first: exit 7 .numeric failure. after [0-9.]+ s")))
      << text;
  EXPECT_EQ(count_of("\n  loss is nan\n", report), 1u) << text;
}

TEST_F(LaunchTest, rank_0_too_is_quoted_when_its_stderr_is_no_terminal) {
  request_.deadlines.peers_s = kNoTimeout;
  EXPECT_EQ(
      run("if [ $RANK = 0 ]; then echo disk is full >&2; echo $$ > $D/pid0; exit 8; fi; until_it gone $D/pid0; exit 5"),
      8);
  EXPECT_EQ(count_of("rank 0 failed first: exit 8", err()), 1u) << err();
  EXPECT_EQ(count_of("disk is full\n", err()), 2u) << err();
}

TEST_F(LaunchTest, on_a_terminal_rank_0_writes_there_itself_and_other_ranks_errors_are_said_once) {
  request_.ranks = 3;
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  errors_to_ = ptsname(terminal);
  EXPECT_EQ(run("[ -t 2 ] && echo terminal of $RANK; echo 'drivetrain: error: no such key' >&2; exit 2"), 2);
  std::string text = "\n";
  for (char c = 0; read(terminal, &c, 1) == 1;) text += c;  // fails once nobody else has it open
  close(terminal);
  EXPECT_EQ(out(), "terminal of 0\n");
  for (const char* part : {"\ndrivetrain: error: no such key", "[rank ", " failed first: exit 2"})
    EXPECT_EQ(count_of(part, text), 1u) << text;
}

TEST_F(LaunchTest, what_all_ranks_find_wrong_with_the_configuration_is_said_once) {
  request_.ranks = 3;
  EXPECT_EQ(run("echo warning >&2; echo 'drivetrain: error: no such key' >&2; echo '   nearest: seed' >&2; exit 2"), 2);
  for (const char* line : {"no such key\n", "nearest: seed\n", "; all ranks said the same\n"})
    EXPECT_EQ(count_of(line, err()), 1u) << err();
  EXPECT_EQ(count_of("\ndrivetrain: error: no such key\n   nearest: seed\n", "\n" + err()), 1u) << err();
  EXPECT_EQ(count_of("warning\n", err()), 3u) << err();
}

// A rank of a slow host finds nobody any more: that is no other error.
TEST_F(LaunchTest, what_is_wrong_is_said_once_though_a_rank_comes_when_rank_0_has_ended) {
  request_.ranks = 3;
  EXPECT_EQ(
      run("if [ $RANK = 2 ]; then echo 'drivetrain: error: rank 2: nothing listens any more on x:1, so rank 0 has "
          "ended: Connection refused' >&2; exit 5; fi; echo 'drivetrain: error: no such file' >&2; exit 2"),
      2);
  EXPECT_EQ(count_of("no such file\n", err()), 1u) << err();
  EXPECT_EQ(count_of(" failed first: exit 2", err()), 1u) << err();
  EXPECT_EQ(count_of("; what it said stands above\n", err()), 1u) << err();
  EXPECT_EQ(count_of("all ranks said the same", err()), 0u) << err();
}

// That rank had read the same files: it has another thing to say.
TEST_F(LaunchTest, a_rank_that_had_met_rank_0_and_lost_it_did_not_come_late) {
  request_.ranks = 2;
  EXPECT_EQ(run("if [ $RANK = 1 ]; then echo 'drivetrain: error: rank 1: x:1 is gone, so rank 0 has ended' "
                ">&2; exit 5; fi; echo 'drivetrain: error: in my/plugin, hook forward' >&2; exit 3"),
            3);
  EXPECT_EQ(count_of("; its last lines:\n", err()), 1u) << err();
  EXPECT_EQ(count_of("what it said stands above", err()), 0u) << err();
}

TEST_F(LaunchTest, errors_that_differ_are_all_said) {
  request_.ranks = 3;
  EXPECT_EQ(run("if [ $RANK = 0 ]; then n=0; else n=1; fi; echo \"drivetrain: error: key $n\" >&2; exit 2"), 2);
  EXPECT_EQ(count_of("\ndrivetrain: error: key 0\n", "\n" + err()), 1u) << err();
  EXPECT_EQ(count_of("[rank 1] drivetrain: error: key 1\n", err()), 1u) << err();
  EXPECT_EQ(count_of("[rank 2]", err()), 0u) << "it said what rank 1 did: " << err();
  EXPECT_EQ(count_of("all ranks said the same", err()), 0u) << err();
}

TEST_F(LaunchTest, what_many_ranks_say_of_one_loss_is_said_once) {
  request_.ranks = 16;
  EXPECT_EQ(run("[ $RANK = 7 ] && exit 0\n"
                "echo \"drivetrain: error: communicator, call $((RANK % 3)): rank 7 (pid 3) died\" >&2; exit 5"),
            5);
  EXPECT_EQ(count_of("rank 7 (pid 3) died", err()), 1u) << err();
  EXPECT_EQ(count_of("drivetrain launch: 14 other ranks said the same as rank 0\n", err()), 1u) << err();
}

TEST_F(LaunchTest, losses_that_differ_are_all_said) {
  request_.ranks = 3;
  EXPECT_EQ(run("echo \"drivetrain: error: here: rank $((RANK + 1)) died\" >&2; exit 5"), 5);
  for (const char* line : {"here: rank 1 died", "[rank 1] drivetrain: error: here: rank 2 died",
                           "[rank 2] drivetrain: error: here: rank 3 died"})
    EXPECT_GE(count_of(line, "\n" + err()), 1u) << err();
}

TEST_F(LaunchTest, an_error_is_not_kept_back_while_a_rank_does_not_end) {
  EXPECT_EQ(
      run("trap '' TERM; all_up; if [ $RANK = 1 ]; then echo 'drivetrain: error: disk is full' >&2; exit 8; fi; idle"),
      8);
  const std::string text = err();
  EXPECT_LT(text.find("[rank 1] drivetrain: error: disk is full\n"), text.find("did not notice")) << text;
}

TEST_F(LaunchTest, a_rank_killed_by_a_signal_gives_128_plus_its_number) {
  request_.deadlines.peers_s = kNoTimeout;
  EXPECT_EQ(run("[ $RANK = 0 ] && { echo $$ > $D/pid0; exit 5; }; until_it gone $D/pid0; kill -9 $$"), 137);
  EXPECT_EQ(count_of("rank 1 failed first: killed by signal 9", err()), 1u) << err();
}

TEST_F(LaunchTest, a_command_that_cannot_be_run_is_named) {
  start(std::vector<std::string>{"/no/such/program"});
  EXPECT_EQ(finish(), 127);
  EXPECT_GE(count_of("cannot run /no/such/program: No such file or directory", err()), 1u) << err();
}

TEST_F(LaunchTest, a_rank_that_cannot_be_started_is_the_failure_and_not_those_that_end_for_it) {
  request_.ranks = 3;
  request_.setup.log_folder = folder_, request_.setup.log_begin = "log";
  std::filesystem::create_directories(folder_ + "/log_rank1.log");  // so that rank 1 has no log
  EXPECT_EQ(run("hold"), 8);
  EXPECT_EQ(count_of("log_rank1.log cannot be made", err()), 1u) << err();
  EXPECT_EQ(count_of("is lost", err()), 0u) << err();

  const pid_t agent = fork();  // whose children are all its own
  if (agent == 0) {
    signal(SIGPIPE, SIG_IGN);  // as agents do: rank 0 may be gone when it is told
    std::filesystem::remove(folder_ + "/log_rank0.log");
    StartOrder order;
    order.world = 3, order.slots = {0, 1, 2}, order.command = test::kStays, order.setup = request_.setup;
    const std::vector<RankEnd> ends = ends_told_by_agent(order);
    const auto first = first_failure(ends, 0);
    _exit(ends.size() == 3 && first && first->rank == 1 ? launch_code(ends, 0) : 100);
  }
  int status = 0;
  waitpid(agent, &status, 0);
  EXPECT_EQ(status, 8 << 8);
}

TEST_F(LaunchTest, ranks_that_do_not_notice_are_ended_with_all_they_started) {
  request_.ranks = 3;
  EXPECT_EQ(run("[ $RANK = 0 ] && { until_it has_lines 6 $D/pids; exit 3; }\n"
                "trap '' TERM; $STAY & echo $! >> $D/pids; setsid $STAY & echo $! >> $D/pids\n"
                "echo $$ >> $D/pids; idle"),
            3);
  EXPECT_EQ(pids().size(), 6u);
  expect_all_gone();
  EXPECT_EQ(count_of("did not notice the failure of another rank, and is ended", err()), 2u) << err();
  EXPECT_EQ(count_of("rank 0 failed first: exit 3", err()), 1u) << err();
}

TEST_F(LaunchTest, what_a_rank_leaves_running_is_ended_when_it_is_done) {
  EXPECT_EQ(run("$STAY & echo $! >> $D/pids"), 0);
  EXPECT_EQ(pids().size(), 2u);
  expect_all_gone();
}

constexpr const char* kWaitForSignal =
    "trap 'echo got INT; exit 130' INT; trap 'echo got TERM; exit 143' TERM; echo $$ >> $D/pids; idle";

TEST_F(LaunchTest, a_signal_is_passed_on_to_every_rank_once) {
  for (const auto& [signal, name] : {std::pair{SIGINT, "got INT"}, {SIGTERM, "got TERM"}, {SIGHUP, "got TERM"}}) {
    std::filesystem::remove(folder_ + "/pids");
    std::filesystem::remove(folder_ + "/out");
    start(kWaitForSignal);
    ASSERT_TRUE(eventually([&] { return pids().size() == 2; }));
    kill(launcher_, signal);
    EXPECT_EQ(finish(), 128 + (signal == SIGHUP ? SIGTERM : signal));
    EXPECT_EQ(count_of(name, out()), 2u) << out();
    EXPECT_EQ(count_of("failed", err()), 0u) << err();
    expect_all_gone();
  }
}

// Ctrl-Z: the shell stops what it started, and ranks are in groups of their own.
TEST_F(LaunchTest, a_launcher_that_is_suspended_suspends_its_ranks) {
  start("echo $$ >> $D/pids; await go_on; exit 0");
  ASSERT_TRUE(eventually([&] { return pids().size() == 2; }));
  const auto state_of = [](pid_t pid) {
    const std::string stat = content("/proc/" + std::to_string(pid) + "/stat");
    return stat.empty() ? ' ' : stat[stat.rfind(')') + 2];
  };
  kill(launcher_, SIGTSTP);
  ASSERT_TRUE(eventually([&] { return state_of(launcher_) == 'T'; }));
  for (const pid_t pid : pids()) EXPECT_TRUE(eventually([&] { return state_of(pid) == 'T'; }));
  std::ofstream(folder_ + "/go_on") << "now";
  kill(launcher_, SIGCONT);
  EXPECT_EQ(finish(), 0);
  EXPECT_EQ(count_of("failed", err()), 0u) << err();
}

// All ranks of a run that has begun ended well, and nobody said that it is done.
TEST_F(LaunchTest, ranks_that_leave_in_the_middle_of_a_run_are_not_done) {
  const std::string begin = "[ $RANK = 0 ] && printf 'x %s\\0' $D/run >&$DRIVETRAIN_RESTART_POINTS_FD;";
  EXPECT_EQ(run(begin + " exit 0"), 3);
  EXPECT_EQ(count_of("the run in " + folder_ + "/run is not done", err()), 1u) << err();
  EXPECT_EQ(run(begin + " [ $RANK = 0 ] && printf 'done\\0' >&$DRIVETRAIN_RESTART_POINTS_FD; exit 0"), 0);
}

TEST_F(LaunchTest, a_second_signal_kills) {
  start("trap 'echo got $RANK >> $D/got' INT; echo $$ >> $D/pids; idle");
  ASSERT_TRUE(eventually([&] { return pids().size() == 2; }));
  kill(launcher_, SIGINT);
  ASSERT_TRUE(eventually([&] { return content(folder_ + "/got").size() == 12; }));
  kill(launcher_, SIGINT);
  EXPECT_EQ(finish(), 130);
  expect_all_gone();
}

TEST_F(LaunchTest, ranks_die_with_a_launcher_that_is_killed) {
  start("trap '' INT TERM HUP; echo $$ >> $D/pids; idle");
  ASSERT_TRUE(eventually([&] { return pids().size() == 2; }));
  kill(launcher_, SIGKILL);
  EXPECT_EQ(finish(), 1000 + SIGKILL);
  expect_all_gone();
}

TEST_F(LaunchTest, a_killed_rank_ends_the_others_and_nothing_stays) {
  start("echo $$ >> $D/pids; idle");
  ASSERT_TRUE(eventually([&] { return pids().size() == 2; }));
  kill(pids()[0], SIGKILL);
  EXPECT_EQ(finish(), 137);
  expect_all_gone();
}

TEST_F(LaunchTest, rank_0_holds_the_socket_that_the_others_connect_to) {
  EXPECT_EQ(run("if [ $RANK = 0 ]; then readlink /proc/self/fd/$DRIVETRAIN_LISTEN_FD; await met\n"
                "else exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && touch $D/met; fi"),
            0);
  EXPECT_EQ(count_of("socket:[", out()), 1u) << out() << err();
}

TEST_F(LaunchTest, once_rank_0_is_gone_others_are_refused_at_once) {
  EXPECT_EQ(run("[ $RANK = 0 ] && { echo $$ > $D/pid0; exit 0; }\n"
                "until_it gone $D/pid0; exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT || exit 5"),
            5);
  EXPECT_GE(count_of("Connection refused", err()), 1u) << err();
}

TEST_F(LaunchTest, a_plan_is_made_by_rank_0_alone) {
  request_.ranks = 8;
  request_.only_rank_0 = true;
  EXPECT_EQ(run("echo rank $RANK of $WORLD_SIZE"), 0);
  EXPECT_EQ(out(), "rank 0 of 8\n");
}

}  // namespace
}  // namespace drivetrain::program
