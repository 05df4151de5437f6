// The launcher and ranks whose output nobody reads: real pipes, and shell scripts for ranks.
#include <sys/socket.h>

#include "launch/outlet.h"
#include "support/launch_fixture.h"

namespace drivetrain::program {
namespace {

struct Ends {
  Ends() { EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0); }
  ~Ends() { close(fds[0]), close(fds[1]); }
  std::string taken() const {
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(fds[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }
  int fds[2] = {-1, -1};
};

TEST(Outlet, keeps_what_nobody_reads_and_loses_nothing_once_somebody_does) {
  const Ends ends;
  Outlet outlet(ends.fds[1]);
  ASSERT_TRUE(outlet.may_fill());
  std::string sent, got;
  for (int i = 0; i < 1000; ++i) sent += std::string(1000, static_cast<char>('a' + i % 26)) + "\n";
  for (size_t at = 0; at < sent.size(); at += 1001) outlet.put(sent.substr(at, 1001));
  EXPECT_GT(outlet.size(), 100'000u);
  EXPECT_EQ(fcntl(ends.fds[1], F_GETFL) & O_NONBLOCK, 0) << "others share it";
  for (got = ends.taken(); !outlet.is_empty(); got += ends.taken()) outlet.flush();
  EXPECT_EQ(got, sent);
  EXPECT_EQ(outlet.problem(), "");
}

TEST(Outlet, a_socket_is_not_waited_for_either) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Outlet outlet(fds[1]);
  outlet.put(std::string(4U << 20, 'x'));
  EXPECT_FALSE(outlet.is_empty());
  close(fds[0]), close(fds[1]);
}

TEST(Outlet, drops_only_what_is_not_taken_when_the_end_has_come) {
  const Ends ends;
  Outlet outlet(ends.fds[1]);
  outlet.put(std::string(1U << 18, 'x'));
  outlet.drop_after(0);
  outlet.flush();
  EXPECT_TRUE(outlet.is_empty());
  EXPECT_NE(outlet.problem().find("is not read"), std::string::npos);
  EXPECT_EQ(outlet.problem(), "") << "once";
  outlet.put("lost");
  EXPECT_EQ(ends.taken().find("lost"), std::string::npos);
  outlet.put("taken again");
  EXPECT_EQ(ends.taken(), "taken again");
}

TEST(Outlet, two_that_are_one_keep_lines_whole) {
  const Ends ends;
  const Descriptor again(dup(ends.fds[1]));
  Outlets both(ends.fds[1], again.get());
  std::string lines;
  for (int i = 0; i < 30000; ++i) lines += "a line that is whole\n";
  both.out.put(lines);
  both.err.put("an error\n");
  std::string all;
  while (!both.out.is_empty()) all += ends.taken(), both.turn();
  all += ends.taken();
  EXPECT_EQ(all, lines + "an error\n");
}

TEST(Outlet, says_once_that_a_full_disk_takes_nothing_and_nothing_of_a_reader_that_is_gone) {
  const Descriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  Outlet outlet(full.get());
  outlet.put("a"), outlet.put("b");
  EXPECT_EQ(outlet.problem(), "cannot be written: No space left on device; output is lost");
  EXPECT_EQ(outlet.problem(), "");
  signal(SIGPIPE, SIG_IGN);
  Ends ends;
  Outlet to_nobody(ends.fds[1]);
  close(ends.fds[0]), ends.fds[0] = -1;
  to_nobody.put("a");
  EXPECT_TRUE(to_nobody.is_empty());
  EXPECT_EQ(to_nobody.problem(), "");
}

// Rank 0 fills the launcher's stdout, a pipe that nobody reads, and on SIGTERM saves as a rank of `train` does.
class UnreadTest : public LaunchTest {
 protected:
  void start_unread(const std::string& script) {
    request_.command = {"/bin/bash", "-c", kShell + script};
    setenv("D", folder_.c_str(), 1);
    launcher_ = fork();
    if (launcher_ != 0) return;
    dup2(unread_.fds[1], STDOUT_FILENO);
    dup2(open(errors_to_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
    _exit(launch(request_));
  }
  void wait_until_rank_0_waits() {
    const std::string file = folder_ + "/pid";
    ASSERT_TRUE(eventually([&] { return content(file).ends_with("\n"); }));
    ASSERT_TRUE(test::comes_to_wait(std::stoi(content(file))));
  }

  const Ends unread_;
  const std::string fill_ =
      "[ $RANK = 1 ] && hold\necho $$ > $D/pid\n"
      "while :; do echo ------------------------------------------------------; done";
};

TEST_F(UnreadTest, one_signal_ends_the_ranks_and_each_does_what_it_does_at_its_end) {
  start_unread(
      "stop=0; trap 'stop=1' TERM\n[ $RANK = 1 ] && { $STAY & wait; exit 143; }\necho $$ > $D/pid\n"
      "while [ $stop = 0 ]; do echo ------------------------------------------------------; done\n"
      "touch $D/saved; exit 143");
  wait_until_rank_0_waits();
  kill(launcher_, SIGTERM);
  EXPECT_EQ(finish(), 143) << err();
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/saved"));
  EXPECT_EQ(count_of("drivetrain launch: stdout is not read: ", err()), 1u) << err();
}

// More than a pipe holds, and a rank that fails behind it: the launcher waits with the restart meanwhile.
class UnreadInPauseTest : public UnreadTest {
 protected:
  void start_until_the_pause() {
    request_.max_restarts = 1, request_.first_pause_s = request_.longest_pause_s = 1000;
    start_unread("[ $RANK = 1 ] && hold\nhead -c 300000 /dev/zero | tr '\\0' x; kill -9 $$");
    ASSERT_TRUE(eventually([&] { return count_of("restart 1 of 1 in 1000 s", err()) == 1; })) << err();
  }
};

TEST_F(UnreadInPauseTest, all_of_it_arrives_before_the_restart) {
  start_until_the_pause();
  std::string got;
  EXPECT_TRUE(eventually([&] { return (got += unread_.taken()).size() >= 300'000; })) << got.size();
  EXPECT_TRUE(got == std::string(300'000, 'x'));
  kill(launcher_, SIGTERM);
  EXPECT_EQ(finish(), 143) << err();
  EXPECT_EQ(count_of("is not read", err()), 0u) << err();
}

TEST_F(UnreadInPauseTest, one_signal_ends_the_launcher) {
  start_until_the_pause();
  kill(launcher_, SIGUSR2);  // a question to ranks, of which there are none
  kill(launcher_, SIGTERM);
  EXPECT_EQ(finish(), 143) << err();
  EXPECT_EQ(count_of("drivetrain launch: stdout is not read: ", err()), 1u) << err();
}

TEST_F(UnreadTest, a_rank_that_is_killed_is_named) {
  start_unread("[ $RANK = 1 ] && { await now; kill -9 $$; }\n" + fill_);
  wait_until_rank_0_waits();
  std::ofstream(folder_ + "/now");
  EXPECT_EQ(finish(), 137) << err();
  EXPECT_EQ(count_of("rank 1 failed first: killed by signal 9", err()), 1u) << err();
}

// Though another rank has ended and this one does nothing.
TEST_F(UnreadTest, a_rank_that_waits_for_the_reader_is_not_blamed_and_all_of_it_arrives) {
  request_.deadlines.idle_s = 0.5;
  start_unread(
      "[ $RANK = 1 ] && exit 0\necho $$ > $D/pid\nfor i in {1..40000}; do echo \"line $i "
      "---------------------------------------- of 0\"; done\nexit 0");
  wait_until_rank_0_waits();
  let_pass(1.5);  // Waits: nobody is blamed in three times the time after which an idle rank is
  std::string got;
  int status = 0;
  ASSERT_TRUE(eventually([&] { return got += unread_.taken(), waitpid(launcher_, &status, WNOHANG) == launcher_; }));
  launcher_ = -1;
  got += unread_.taken();
  EXPECT_EQ(status, 0) << err();
  EXPECT_EQ(count_of(" of 0\n", got), 40000u);
  EXPECT_EQ(err(), "");
}

}  // namespace
}  // namespace drivetrain::program
