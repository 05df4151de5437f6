// kill -9 of any rank at any call that changes a checkpoint's files: the run goes on by itself with the same bits, and
// the next save leaves nothing behind. DRIVETRAIN_ALL_KILL_POINTS=1 tries every call; otherwise some of them.
#include "program/background.h"

namespace drivetrain::test {
namespace {

constexpr const char* kSets =
    R"(--set train_steps=6 --set 'checkpoint_policy={"type": "every", "params": {"steps": 2, "keep": 1}}' )";

class KillPoints : public ProgramTest {
 protected:
  Ran launch_with(const std::string& store, const std::string& output, const std::string& environment = "") const {
    return run(concat("launch -n 2 ", path("tiny.json"), " ", kSets, store, " --set output_dir=", output), environment);
  }
  static std::string preloaded(const std::string& more) {
    return concat("LD_PRELOAD=", DRIVETRAIN_KILL_AT_CALL, " ", more);
  }
  // How many calls a rank made in the run that lives.
  int64_t calls_of(int rank) const {
    return std::strtoll(file_bytes(path(concat("count", rank))).c_str(), nullptr, 10);
  }
  // Nothing of a save that was killed. A whole checkpoint that was about to be removed may stay until the next save.
  void expect_whole_tags(const std::string& output) const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(output + "/checkpoints")))
      names.insert(entry.path().filename());
    EXPECT_TRUE(names.count("step-00000006"));
    for (const std::string& name : names) EXPECT_TRUE(name.starts_with("step-")) << name;
  }
};

// Without a checkpoint there is nothing to go on from: that is said, and the run begins again.
TEST_F(KillPoints, a_run_that_was_killed_at_any_of_them_ends_with_the_same_bits) {
  const bool all = std::getenv("DRIVETRAIN_ALL_KILL_POINTS");
  int tried = 0;
  for (const std::string store :
       {"--set checkpoint_store.asynchronous=false", "--set checkpoint_store.asynchronous=true"}) {
    ASSERT_EQ(launch_with(store, "whole", preloaded("KILL_COUNT=" + path("count"))).code, 0);
    for (const int rank : {0, 1}) {
      const int64_t calls = calls_of(rank);
      ASSERT_GT(calls, 20);
      for (int64_t at = all ? 1 : 5 + 3 * rank; at <= calls; at += all ? 1 : calls / 2) {
        SCOPED_TRACE(concat(store, ", rank ", rank, " killed at call ", at, " of ", calls));
        const Ran killed = launch_with(store, "b", preloaded(concat("KILL_RANK=", rank, " KILL_AT_CALL=", at)));
        if (killed.code == 0) {  // ranks race for the folder: one more or less call
          EXPECT_GT(at, calls - 4);
          std::filesystem::remove_all(path("b"));
          continue;
        }
        EXPECT_EQ(killed.code, 128 + SIGKILL) << killed.output;
        Ran rest = launch_with(store, "b");
        if (rest.code == 2 && rest.output.find("holds a run already") != std::string::npos) {
          EXPECT_EQ(rest.output.find("goes on"), std::string::npos) << rest.output;
          std::filesystem::remove_all(path("b"));
          rest = launch_with(store, "b");
        }
        ASSERT_EQ(rest.code, 0) << rest.output;
        EXPECT_EQ(curve("whole"), curve("b"));
        EXPECT_EQ(final_weights("whole"), final_weights("b"));
        expect_whole_tags("b");
        std::filesystem::remove_all(path("b"));
        ++tried;
      }
    }
    std::filesystem::remove_all(path("whole"));
  }
  RecordProperty("kill_points", tried);
  if (all) std::printf("%d kill points were tried and survived\n", tried);
}

}  // namespace
}  // namespace drivetrain::test
