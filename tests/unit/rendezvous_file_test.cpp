// Ranks that somebody else started find their own rank 0, no other run's, and nothing that another user wrote.
// Launchers are forked processes.
#include "store/rendezvous_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "rendezvous/rendezvous.h"
#include "support/loopback.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
namespace fs = std::filesystem;

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

void expect_error(const std::function<void()>& action, const std::vector<std::string>& words) {
  try {
    action();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::communication);
    for (const std::string& word : words) EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
}

// Folders of this test alone; users' own lie elsewhere.
class RendezvousFiles : public testing::Test {
 protected:
  RendezvousFiles() {
    setenv("XDG_RUNTIME_DIR", runtime_.path().c_str(), 1);
    setenv("HOME", home_.path().c_str(), 1);
  }
  ~RendezvousFiles() override { unsetenv("XDG_RUNTIME_DIR"); }

  static RendezvousFile by_address(bool one_host = true) {
    return RendezvousFile::of_address("127.0.0.1", 29500, one_host);
  }
  std::string folder() const { return runtime_ / "drivetrain"; }
  static mode_t mode_of(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(lstat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 0777;
  }

  const TempFolder runtime_, home_;
};

// A launcher with three ranks; the code is 0 if all share one store.
int launch_ranks() {
  const auto rank_of_three = [](int64_t rank) {
    RankEnvironment env{.rank = rank, .world_size = 3, .local_rank = rank, .local_size = 3};
    env.launcher_rank_variable = kRankVariable;
    if (rank == 0) let_pass(0.1);  // Waits: the others wait for it
    const auto store = make_store(env, deadline_s());
    store->set(std::to_string(rank), concat(getppid()));
    for (const char* other : {"0", "1", "2"})
      if (store->get(other, deadline_s()) != concat(getppid())) return 11;
    return 0;
  };
  std::vector<pid_t> ranks;
  for (const int64_t rank : {1, 2, 0}) ranks.push_back(in_process([&] { return rank_of_three(rank); }));
  int worst = 0;
  for (const pid_t rank : ranks) worst = std::max(worst, code_of(rank));
  return worst;
}

TEST_F(RendezvousFiles, ranks_of_several_launchers_at_once_find_their_own_rank_0_and_leave_nothing) {
  std::vector<pid_t> launchers;
  for (int i = 0; i < 3; ++i) launchers.push_back(in_process(launch_ranks));
  for (const pid_t launcher : launchers) EXPECT_EQ(code_of(launcher), 0);
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(RendezvousFiles, a_place_that_was_closed_is_not_found) {
  RendezvousFile first = RendezvousFile::of_launcher(kRankVariable);
  first.write({1234, "secret"});
  EXPECT_EQ(RendezvousFile::of_launcher(kRankVariable).read()->port, 1234);
  first.close();
  EXPECT_FALSE(RendezvousFile::of_launcher(kRankVariable).read());
  RankEnvironment env{.rank = 1, .world_size = 2, .local_rank = 1, .local_size = 2};
  env.launcher_rank_variable = kRankVariable;
  expect_error([&] { make_store(env, 0.05); },
               {"rank 1: rank 0 did not show itself", "within 0.05 s", folder(), "MASTER_ADDR"});
}

TEST_F(RendezvousFiles, only_this_user_can_read_what_is_shown) {
  umask(0);
  for (const bool one_host : {true, false}) {
    RendezvousFile place = by_address(one_host);
    place.write({29500, "secret"});
    const std::string where = one_host ? folder() : home_ / ".cache/drivetrain/meeting";
    EXPECT_EQ(mode_of(where), 0700u);
    EXPECT_EQ(mode_of(where + "/at-127.0.0.1-29500"), 0600u);
    EXPECT_EQ(by_address(one_host).read()->secret, "secret");
  }
  umask(022);
  EXPECT_FALSE(fs::exists(folder() + "/at-127.0.0.1-29500"));  // gone with its maker
}

TEST_F(RendezvousFiles, a_folder_that_others_can_use_or_own_is_refused_with_what_to_do) {
  fs::create_directory(folder());
  chmod(folder().c_str(), 0750);
  const auto refused = [&](const std::vector<std::string>& words) {
    expect_error([] { by_address().write({1, "secret"}); }, words);
    expect_error([] { by_address().read(); }, words);
  };
  refused({folder(), "can be used by others", "chmod 700", "DRIVETRAIN_RUN_TOKEN"});
  chmod(folder().c_str(), 0700);
  if (chown(folder().c_str(), 65534, 65534) == 0) {
    refused({folder(), "belongs to user 65534, not to ", "have it removed"});
    ASSERT_EQ(chown(folder().c_str(), geteuid(), getegid()), 0);
  }
  fs::remove(folder());
  fs::create_directory_symlink(home_.path(), folder());
  refused({folder(), "is no folder", "remove it"});
  fs::remove(folder());
  std::ofstream(folder()) << "a file";
  refused({folder(), "is no folder"});
}

TEST_F(RendezvousFiles, a_file_that_others_can_read_or_that_is_a_link_is_not_taken) {
  by_address().write({1, "secret"});
  const std::string file = folder() + "/at-127.0.0.1-29500";
  std::ofstream(file) << "1 secret\n";
  chmod(file.c_str(), 0640);
  expect_error([] { by_address().read(); }, {file, "can be used by others"});
  fs::remove(file);
  std::ofstream(home_ / "elsewhere") << "1 secret\n";
  chmod((home_ / "elsewhere").c_str(), 0600);
  fs::create_symlink(home_ / "elsewhere", file);
  EXPECT_FALSE(by_address().read());
  by_address().write({2, "another"});  // replaces the link, not what it names
  EXPECT_EQ(home_.text("elsewhere"), "1 secret\n");
}

TEST_F(RendezvousFiles, a_runtime_folder_that_is_not_private_is_not_used) {
  chmod(runtime_.path().c_str(), 0755);
  EXPECT_EQ(by_address().text().find(runtime_.path()), std::string::npos) << by_address().text();
  chmod(runtime_.path().c_str(), 0700);
  EXPECT_NE(by_address().text().find(runtime_.path()), std::string::npos) << by_address().text();
}

// A run that was killed left its file; another program has got its port.
TEST_F(RendezvousFiles, what_a_dead_run_left_is_no_hindrance) {
  int64_t port = 0;
  close(listening_socket(port));
  RankEnvironment env{.rank = 0, .world_size = 2, .local_rank = 0, .local_size = 2};
  env.master_port = port;
  RendezvousFile::of_address("127.0.0.1", port, true).write({port, "of-the-dead"});  // makes the folder; its file goes
  const std::string left = folder() + "/" + concat("at-127.0.0.1-", port);
  std::ofstream(left) << port << " of-the-dead\n";
  chmod(left.c_str(), 0600);
  std::shared_ptr<Store> other;
  std::thread client([&] {
    RankEnvironment mine = env;
    mine.rank = mine.local_rank = 1;
    other = make_store(mine, deadline_s());
  });
  let_pass(0.2);  // Waits: it reads the old file
  const auto rank_0 = make_store(env, deadline_s());
  client.join();
  other->set("found", "yes");
  EXPECT_EQ(rank_0->get("found", deadline_s()), "yes");
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(RendezvousFiles, what_killed_runs_left_goes_after_a_day) {
  by_address().write({1, "secret"});
  for (const char* name : {"of-yesterday", "of-now"}) std::ofstream(folder() + "/" + name) << "1 secret\n";
  fs::last_write_time(folder() + "/of-yesterday", fs::file_time_type::clock::now() - std::chrono::hours(25));
  by_address().write({1, "secret"});
  EXPECT_FALSE(fs::exists(folder() + "/of-yesterday"));
  EXPECT_TRUE(fs::exists(folder() + "/of-now"));
}

TEST_F(RendezvousFiles, a_rank_whose_rank_0_does_not_share_the_folder_is_told_of_the_token) {
  RankEnvironment env{.rank = 1, .world_size = 2, .local_known = false, .master_addr = "192.0.2.1"};
  expect_error([&] { make_store(env, 0.1); },
               {"rank 1: rank 0 did not show itself", home_ / ".cache/drivetrain/meeting", "DRIVETRAIN_RUN_TOKEN"});
}

}  // namespace
}  // namespace drivetrain
