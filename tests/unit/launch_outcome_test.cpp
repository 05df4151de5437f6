// Which rank's end decides the exit code of launch, and what is passed on of what ranks write.
#include "launch/outcome.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "launch/line_relay.h"
#include "launch/rank_errors.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

RankEnd end(int rank, int code, double after_s, bool killed = false) { return {rank, code, killed, false, after_s}; }
RankEnd made_to_end(int rank, int code, double after_s) { return {rank, code, true, true, after_s}; }

// The order in which ends are noticed must not matter.
int first_rank(std::vector<RankEnd> ends, int signal = 0) {
  const auto first = first_failure(ends, signal);
  std::reverse(ends.begin(), ends.end());
  const auto again = first_failure(ends, signal);
  EXPECT_EQ(first.has_value(), again.has_value());
  if (!first) return -1;
  EXPECT_EQ(first->rank, again->rank);
  return first->rank;
}

TEST(Outcome, nothing_failed) {
  EXPECT_EQ(first_rank({end(0, 0, 1), end(1, 0, 2)}), -1);
  EXPECT_EQ(launch_code({end(0, 0, 1), end(1, 0, 2)}, 0), 0);
}

TEST(Outcome, the_earliest_failure_counts) {
  EXPECT_EQ(first_rank({end(0, 2, 1), end(1, 3, 0.5), end(2, 0, 0.1)}), 1);
  EXPECT_EQ(launch_code({end(0, 2, 1), end(1, 3, 0.5), end(2, 0, 0.1)}, 0), 3);
}

TEST(Outcome, a_lost_peer_is_not_the_first_failure_if_another_rank_failed_otherwise) {
  EXPECT_EQ(first_rank({end(0, 5, 1), end(1, 137, 1.5, true)}), 1);
  EXPECT_EQ(first_rank({end(0, 5, 1), end(1, 7, 1.5), end(2, 5, 0.9)}), 1);
}

TEST(Outcome, a_lost_peer_is_the_failure_if_there_is_no_other) {
  EXPECT_EQ(first_rank({end(0, 5, 2), end(1, 5, 1), made_to_end(2, 143, 3)}), 1);
  EXPECT_EQ(launch_code({end(0, 5, 2), end(1, 5, 1), made_to_end(2, 143, 3)}, 0), 5);
}

TEST(Outcome, a_rank_that_did_not_go_on_is_the_cause_of_lost_peers_and_not_of_other_failures) {
  RankEnd stopped = made_to_end(1, 5, 9);
  stopped.fault = "stopped by signal 19";
  EXPECT_EQ(first_rank({end(0, 5, 4), stopped, end(2, 5, 5)}), 1);
  EXPECT_EQ(first_rank({end(0, 0, 4), stopped}), 1);
  EXPECT_EQ(launch_code({end(0, 0, 4), stopped}, 0), 5);
  EXPECT_EQ(first_rank({end(0, 7, 10), stopped, end(2, 5, 5)}), 0);
  EXPECT_EQ(first_rank({end(0, 143, 4), stopped}, SIGTERM), 1);
  EXPECT_EQ(describe_end(stopped), "stopped by signal 19");
}

TEST(Outcome, ranks_that_stopped_as_asked_are_no_failure) {
  const std::vector<RankEnd> ends{end(0, 143, 1), end(1, 5, 1.1), end(2, 143, 0.9, true)};
  EXPECT_EQ(first_rank(ends, SIGTERM), -1);
  EXPECT_EQ(launch_code(ends, SIGTERM), 143);
}

TEST(Outcome, a_failure_while_stopping_is_one) {
  const std::vector<RankEnd> ends{end(0, 8, 1), end(1, 130, 0.9)};
  EXPECT_EQ(first_rank(ends, SIGINT), 0);
  EXPECT_EQ(launch_code(ends, SIGINT), 8);
}

TEST(Outcome, a_signal_after_the_last_step_leaves_success) {
  EXPECT_EQ(launch_code({end(0, 0, 1), end(1, 0, 1)}, SIGINT), 0);
}

TEST(Outcome, killed_by_the_second_signal_is_the_first_signals_code) {
  EXPECT_EQ(launch_code({made_to_end(0, 137, 1), made_to_end(1, 137, 1)}, SIGINT), 130);
}

TEST(Outcome, errors_are_the_same_where_their_cause_is) {
  EXPECT_EQ(cause_of("error: call #6 of group \"dp\": rank 2 (pid 7) died\nmore"), "rank 2 (pid 7) died");
  EXPECT_EQ(cause_of("error: disk is full\nmore"), "error: disk is full\nmore");
  const auto same = same_errors({"a: rank 2 died", "", "b: rank 2 died", "c: rank 1 died", "d: rank 2 died"});
  ASSERT_EQ(same.size(), 2u);
  EXPECT_EQ(same[0].ranks, (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(same[0].note(0), "2 other ranks said the same as rank 0");
  EXPECT_EQ(same[1].note(same[1].ranks.front()), "");
}

TEST(Outcome, a_rank_that_has_heard_an_error_says_the_same_as_the_one_that_had_it) {
  EXPECT_EQ(heard_error("drivetrain: error: rank 12 stopped: no file x\n"), "no file x");
  EXPECT_EQ(heard_error("drivetrain: error: call #3: rank 2 stopped: no file x"), "no file x");
  EXPECT_EQ(heard_error("drivetrain: error: rank 2 stopped before the start; why is not known"), "");
  EXPECT_EQ(heard_error("drivetrain: error: no file x"), "");
  const std::string said = "drivetrain: error: ", heard = said + "rank 2 stopped: ";
  const auto same = same_errors({heard + "no file x\n", heard + "no file y\n", said + "no file x\n  look there\n",
                                 said + "no file z\n", heard + "call #1: rank 7 died\n", "", said + "rank 7 died\n"});
  ASSERT_EQ(same.size(), 4u);
  EXPECT_EQ(heard_error(heard + std::string(60000, 'x')).size(), 60000u);  // as long as a line may be
  EXPECT_TRUE(says_as_much(heard + "no file x\n", said + "no file x\n"));
  EXPECT_FALSE(says_as_much(heard + "no file x\n", said + "no file x\n  look there\n"));
  EXPECT_FALSE(says_as_much(said + "in a hook: call #1: rank 2 stopped: no file x\n", said + "no file x\n"));
  EXPECT_EQ(same[0].ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(same[1].ranks, (std::vector<int>{1}));
  EXPECT_EQ(same[2].ranks, (std::vector<int>{3}));
  EXPECT_EQ(same[3].ranks, (std::vector<int>{4, 6}));
}

// Takes what a relay passes.
struct Output {
  ~Output() { close(fd); }
  const int fd = memfd_create("output", MFD_CLOEXEC);
  Outlet outlet{fd};
  off_t seen = 0;

  std::string after(LineRelay& relay, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) relay.take(part);
    relay.finish();
    std::string text(static_cast<size_t>(lseek(fd, 0, SEEK_END) - seen), ' ');
    EXPECT_EQ(pread(fd, text.data(), text.size(), seen), static_cast<ssize_t>(text.size()));
    seen += static_cast<off_t>(text.size());
    return text;
  }
};

TEST(Relay, lines_come_whole_in_whatever_parts_and_bytes_as_they_are) {
  Output output;
  LineRelay relay(output.outlet, "[1] ");
  const std::string zero("a\0b", 3), cut(1 << 16, 'x');
  EXPECT_EQ(output.after(relay, {"on", "e\n\ntwo\n\xff\xfe", " no text\n", zero + "\n", cut + "y\n", "end"}),
            "[1] one\n[1] \n[1] two\n[1] \xff\xfe no text\n[1] " + zero + "\n[1] " + cut + "\n[1] y\n[1] end\n");
  EXPECT_EQ(relay.last_lines().back(), "end");
}

TEST(Relay, only_the_last_lines_are_kept) {
  Output output;
  LineRelay relay(output.outlet, "");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + "\n";
  EXPECT_EQ(output.after(relay, {text}), text);
  ASSERT_EQ(relay.last_lines().size(), 20u);
  EXPECT_EQ(relay.last_lines().front(), "line 980");
}

TEST(Relay, what_follows_an_error_is_held_back_until_it_is_too_much_and_never_lost) {
  Output output;
  LineRelay relay(output.outlet, "[1] ");
  const std::string error = "drivetrain: error: it seems\n";
  EXPECT_EQ(output.after(relay, {"before\n" + error + "why\n"}), "[1] before\n");
  std::string more, all = "[1] " + error + "[1] why\n";
  for (int i = 0; i < 10000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    more += line, all += "[1] " + line;
  }
  EXPECT_EQ(output.after(relay, {more}), all);
  relay.pass_error();
  EXPECT_EQ(output.after(relay, {}), "") << "it was passed";
}

// Whoever starts the launcher may have made its output not to block.
TEST(Relay, an_output_that_takes_no_more_for_now_loses_nothing) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor from(ends[0]), to(ends[1]);
  fcntl(to.get(), F_SETFL, O_NONBLOCK);
  std::thread writer([&] { write_text(to.get(), std::string(300000, 'x')); });
  size_t count = 0;
  for (char buffer[1000]; count < 300000;) {
    const ssize_t n = read(from.get(), buffer, sizeof buffer);
    if (n <= 0) break;
    count += static_cast<size_t>(n);
  }
  writer.join();
  EXPECT_EQ(count, 300000u);
}

TEST(Outcome, ends_are_described_in_words) {
  EXPECT_EQ(describe_end(end(0, 7, 1)), "exit 7 (numeric failure)");
  EXPECT_EQ(describe_end(end(0, 139, 1, true)), "killed by signal 11 (Segmentation fault)");
  EXPECT_NE(describe_end(end(0, 135, 1, true)).find("/dev/shm"), std::string::npos);  // SIGBUS
  EXPECT_NE(describe_end(end(0, 137, 1, true)).find("full memory"), std::string::npos);
  EXPECT_EQ(describe_end(end(0, 143, 1)), "exit 143 (stopped by signal 15)");
  EXPECT_EQ(describe_end(end(0, 42, 1)), "exit 42");
}

}  // namespace
}  // namespace drivetrain::program
