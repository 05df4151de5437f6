// checkpoint_store/sharded: one file call of a save fails, is cut short or is the last one of its process. Whichever it
// is, the tag before is whole, and the new one is whole or not there.
#include "test_saves.h"

namespace drivetrain::test {
namespace {

using Strings = std::vector<std::string>;

struct Outcome {
  std::string error;
  bool killed = false;
  int calls = 0;
};

struct ShardedFaults : ShardedTest {
  static State before() { return small_state(1); }
  static State now() { return small_state(2); }

  // Saves "new" where "old" is, and an earlier "new" if it is to be replaced, with one fault.
  Outcome save_with(TestCalls& faulty, bool replaces) {
    std::filesystem::remove_all(folder.path("checkpoints"));
    std::filesystem::copy(folder.path(replaces ? "two" : "one"), folder.path("checkpoints"),
                          std::filesystem::copy_options::recursive);
    Outcome outcome;
    const auto used = store_at(folder.path(), faulty);
    try {
      save(*used, now(), "new", 3);
    } catch (const Error& e) {
      outcome.error = e.what();
      used->discard("new");
    } catch (const Killed&) {
    }
    outcome.killed = faulty.dead, outcome.calls = faulty.calls;
    return outcome;
  }

  // What the folder holds afterwards.
  void check(const Outcome& outcome, bool replaces) {
    const std::string place = folder.path("checkpoints");
    if (!outcome.error.empty() && !outcome.killed) {  // nothing waits for the next start
      for (const std::string& name : names_in(place)) EXPECT_TRUE(name == "old" || name == "new") << name;
    }
    const auto used = store();
    for (const std::string& name : names_in(place)) EXPECT_TRUE(name == "old" || name == "new") << name;
    const Strings tags = names(*used);
    EXPECT_TRUE(tags == (Strings{"new", "old"}) || (!replaces && tags == Strings{"old"})) << tags.size();
    bool is_new = false;
    for (const std::string& tag : tags) {
      const auto checkpoint = used->open(tag);
      EXPECT_EQ(checkpoint->verify(), Strings{});
      const State state = read_all(*checkpoint);
      is_new |= tag == "new" && same(state, now());
      EXPECT_TRUE(same(state, before()) || (tag == "new" && same(state, now())));
    }
    if (outcome.killed) return;
    EXPECT_EQ(is_new, outcome.error.empty());
    EXPECT_EQ(tags.size(), outcome.error.empty() || replaces ? 2u : 1u);
  }

  void every_call(bool replaces, bool can_exchange, bool can_reserve) {
    for (const Fault fault : {Fault::no_space, Fault::io_error, Fault::dead_disk, Fault::half, Fault::killed_before}) {
      int last = 0, errors = 0;
      for (int at = 1;; ++at) {
        SCOPED_TRACE(concat("fault ", static_cast<int>(fault), " at call ", at));
        TestCalls faulty;
        faulty.fault = fault, faulty.fault_at = at;
        faulty.can_exchange = can_exchange, faulty.can_reserve = can_reserve;
        const Outcome outcome = save_with(faulty, replaces);
        check(outcome, replaces);
        errors += !outcome.error.empty();
        EXPECT_TRUE(outcome.error.empty() || outcome.error.starts_with(parent_folder(folder.path()))) << outcome.error;
        if (HasFailure()) return;
        if (outcome.calls < at) break;  // there was no such call
        last = at;
      }
      EXPECT_GT(last, 30);
      EXPECT_TRUE(errors > 20 || fault == Fault::half || fault == Fault::killed_before) << errors;
    }
  }

  void SetUp() override {
    const auto used = store();
    save(*used, before(), "old", 1);
    std::filesystem::copy(folder.path("checkpoints"), folder.path("one"), std::filesystem::copy_options::recursive);
    save(*used, before(), "new", 3);
    std::filesystem::copy(folder.path("checkpoints"), folder.path("two"), std::filesystem::copy_options::recursive);
  }
};

TEST_F(ShardedFaults, at_every_call_of_a_new_tag) { every_call(false, true, true); }
TEST_F(ShardedFaults, at_every_call_of_a_replaced_tag) { every_call(true, true, true); }
TEST_F(ShardedFaults, at_every_call_where_names_cannot_be_exchanged) { every_call(true, false, false); }

TEST_F(ShardedFaults, a_full_disk_is_said_with_its_figures) {
  for (const bool can_reserve : {true, false}) {
    TestCalls faulty;
    faulty.fault = Fault::no_space, faulty.can_reserve = can_reserve;
    std::string text;
    for (int at = 1; text.find("bytes wanted") == std::string::npos && at < 20; ++at) {
      faulty.fault_at = at, faulty.calls = 0;
      text = save_with(faulty, false).error;
    }
    for (const char* part : {"rank-00000.safetensors", "bytes wanted", "bytes are free", "No space left", "free some"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST_F(ShardedFaults, a_tag_that_is_being_removed_is_whole_or_gone) {
  int last = 0;
  for (int at = 1; at == last + 1; ++at) {
    std::filesystem::remove_all(folder.path("checkpoints"));
    std::filesystem::copy(folder.path("two"), folder.path("checkpoints"), std::filesystem::copy_options::recursive);
    TestCalls faulty;
    faulty.fault = Fault::killed_before, faulty.fault_at = at;
    try {
      store_at(folder.path(), faulty)->remove("new");
    } catch (const Killed&) {
    }
    if (faulty.dead) last = at;
    const auto used = store();
    for (const std::string& tag : names(*used)) EXPECT_EQ(used->open(tag)->verify(), Strings{});
    EXPECT_EQ(names_in(folder.path("checkpoints")).size(), names(*used).size());
  }
  EXPECT_GT(last, 8);
}

}  // namespace
}  // namespace drivetrain::test
