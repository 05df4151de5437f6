// Ranks that a launcher of others started on one host find their own rank 0 and no other run's. Launchers are forked
// processes.
#include "compose/meeting_place.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// A variable that no process here has: a rank's launcher is its parent.
constexpr const char* kRankVariable = "DRIVETRAIN_TEST_NO_SUCH_RANK";

pid_t in_process(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  return pid;
}
int code_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

// A launcher with three ranks; the code is 0 if all have found the port of its rank 0.
int launch_ranks() {
  int ports[2], over[2];
  if (pipe(ports) != 0 || pipe(over) != 0) return 10;
  std::vector<pid_t> others;
  const auto find = [&](int64_t rank) {
    const int64_t port = MeetingPlace(kRankVariable).open(rank, 20).port;
    return write(ports[1], &port, sizeof port) == sizeof port ? 0 : 11;
  };
  for (const int64_t rank : {1, 2}) others.push_back(in_process([&] { return find(rank); }));
  const pid_t first = in_process([&] {
    usleep(100000);  // the others wait for it
    MeetingPlace place(kRankVariable);
    const MeetingPlace::Found found = place.open(0, 20);
    char byte;
    if (found.listen_fd < 0 || write(ports[1], &found.port, sizeof found.port) < 0) return 12;
    return read(over[0], &byte, 1) == 1 ? 0 : 13;
  });
  int64_t seen[3] = {};
  for (int64_t& port : seen)
    if (read(ports[0], &port, sizeof port) != sizeof port) return 14;
  if (seen[0] <= 0 || seen[1] != seen[0] || seen[2] != seen[0]) return 15;
  if (write(over[1], "x", 1) != 1) return 16;
  for (const pid_t other : others)
    if (const int code = code_of(other); code != 0) return code;
  return code_of(first);
}

TEST(MeetingPlace, ranks_of_several_launchers_at_once_find_their_own_rank_0) {
  std::vector<pid_t> launchers;
  for (int i = 0; i < 3; ++i) launchers.push_back(in_process(launch_ranks));
  for (const pid_t launcher : launchers) EXPECT_EQ(code_of(launcher), 0);
}

TEST(MeetingPlace, a_place_that_was_closed_is_not_found) {
  MeetingPlace first(kRankVariable);
  const MeetingPlace::Found found = first.open(0, 1);
  EXPECT_EQ(MeetingPlace(kRankVariable).open(1, 1).port, found.port);
  first.close();
  close(found.listen_fd);
  try {
    MeetingPlace(kRankVariable).open(1, 0.05);
    FAIL() << "found a port";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::communication);
    EXPECT_NE(std::string(e.what()).find("rank 1: rank 0 did not start on this host within 0.05 s"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace drivetrain
