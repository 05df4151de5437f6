// checkpoint_store/sharded: whatever a power cut leaves of a save, the tags that were complete are whole, the one that
// was being written is whole or not there, and nothing is a mixture.
#include "test_disk.h"
#include "test_saves.h"

namespace drivetrain::test {
namespace {

using Strings = std::vector<std::string>;

// Tags and what each may hold at a moment: one of several states, or nothing.
struct Allowed {
  std::vector<const State*> states;
  bool may_be_absent = false;
};

struct ShardedPowerCuts : ShardedTest {
  std::map<std::string, Allowed> allowed;
  std::mt19937 random{7};
  int cuts = 0;

  // The state of the disk as the next start finds it.
  void check(const TestDisk::Nodes& disk) {
    const TempFolder left(scratch());
    TestDisk::put(disk, left.path());
    TestCalls plain;
    const auto used = store_at(left.path(), plain);
    for (const auto& [tag, may] : allowed) {
      const Strings tags = names(*used);
      const bool there = std::find(tags.begin(), tags.end(), tag) != tags.end();
      EXPECT_TRUE(there || may.may_be_absent) << tag << " is lost";
      if (!there) continue;
      const auto checkpoint = used->open(tag);
      EXPECT_EQ(checkpoint->verify(), Strings{}) << tag;
      const State state = read_all(*checkpoint);
      EXPECT_TRUE(std::any_of(may.states.begin(), may.states.end(), [&](const State* s) { return same(*s, state); }))
          << tag << " holds none of the states that were saved";
    }
    for (const std::string& name : names_in(left.path("checkpoints"))) EXPECT_TRUE(allowed.contains(name)) << name;
    EXPECT_EQ(host.log.warnings, Strings{});
    ++cuts;
  }

  void run(bool can_exchange) {
    TestDisk disk(folder.path());
    disk.can_exchange = can_exchange;
    const auto cut_here = [&] {
      check(disk.cut(TestDisk::Keeps::nothing, random));
      check(disk.cut(TestDisk::Keeps::everything, random));
      for (int i = 0; i < 4; ++i) check(disk.cut(TestDisk::Keeps::something, random));
    };
    disk.after_call = [&] {
      if (!HasFailure()) cut_here();
    };
    const State first = small_state(1), second = small_state(2), third = small_state(3);
    const auto used = store_at(folder.path(), disk);
    allowed["one"] = {{&first}, true};
    save(*used, first, "one", 1);
    allowed["one"] = {{&first}, false}, allowed["two"] = {{&second}, true};
    cut_here();
    save(*used, second, "two", 2, 2, 3);
    allowed["two"] = {{&second, &third}, false};
    cut_here();
    save(*used, third, "two", 2, 1);
    allowed["two"] = {{&third}, false};
    cut_here();
    allowed["one"].may_be_absent = true;
    used->remove("one");
    allowed.erase("one");
    cut_here();
    Snapshot snapshot = cut(first, "three", 3, 1, 1)[0];  // a save that fails on another rank
    used->write(snapshot);
    used->discard("three");
    cut_here();
    EXPECT_GT(cuts, 700);
    std::cout << cuts << " states of the disk\n";
  }
};

TEST_F(ShardedPowerCuts, leave_the_newest_or_the_one_before) { run(true); }
TEST_F(ShardedPowerCuts, also_where_names_cannot_be_exchanged) { run(false); }

// The test is worth something only if it finds a save that leaves out one fsync.
TEST_F(ShardedPowerCuts, are_found_by_this_test_where_a_file_is_not_synced) {
  struct Forgetful : TestDisk {
    using TestDisk::TestDisk;
    int skipped = 0;
    int fsync(int descriptor) override { return ++skipped % 2 == 0 ? 0 : TestDisk::fsync(descriptor); }
  } disk(folder.path());
  const auto used = store_at(folder.path(), disk);
  const State first = small_state(1);
  save(*used, first, "one", 1);
  int broken = 0;
  for (int i = 0; i < 20; ++i) {
    const TempFolder left(scratch());
    TestDisk::put(disk.cut(TestDisk::Keeps::something, random), left.path());
    TestCalls plain;
    try {
      const auto again = store_at(left.path(), plain);
      broken += names(*again) != Strings{"one"} || !again->open("one")->verify().empty();
    } catch (const Error&) {
      ++broken;
    }
  }
  EXPECT_GT(broken, 0);
}

}  // namespace
}  // namespace drivetrain::test
