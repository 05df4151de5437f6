// checkpoint_store/sharded: folders that are full, cannot be written, hold other things or what a killed save has left.
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "test_saves.h"

namespace drivetrain::test {
namespace {

using Strings = std::vector<std::string>;
namespace fs = std::filesystem;

struct ShardedPlace : ShardedTest {
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
};

TEST_F(ShardedPlace, left_overs_go_when_the_owner_comes) {
  const auto used = store();
  save(*used, small_state(1), "a", 1);
  Snapshot snapshot = cut(small_state(2), "b", 2, 1, 1)[0];
  used->write(snapshot);
  fs::copy(folder.path("checkpoints/a"), folder.path("checkpoints/.removing-c"));
  fs::copy(folder.path("checkpoints/a"), folder.path("checkpoints/.replaced-a"));
  fs::create_directory(folder.path("checkpoints/.cache"));  // not ours
  EXPECT_EQ(names(*used), Strings{"a"});
  store(false);
  EXPECT_TRUE(fs::exists(folder.path("checkpoints/.saving-b")));
  store();
  EXPECT_EQ(names_in(folder.path("checkpoints")), (Strings{".cache", "a"}));
  EXPECT_EQ(used->open("a")->verify(), Strings{});
}

TEST_F(ShardedPlace, a_tag_that_was_moved_aside_is_found_and_comes_back) {
  save(*store(), small_state(1), "a", 1);
  fs::rename(folder.path("checkpoints/a"), folder.path("checkpoints/.replaced-a"));
  EXPECT_TRUE(same(read_all(*store(false)->open("a")), small_state(1)));
  EXPECT_EQ(names(*store(false)), Strings{"a"});
  store();
  EXPECT_EQ(names_in(folder.path("checkpoints")), Strings{"a"});
}

TEST_F(ShardedPlace, files_of_an_earlier_attempt_do_not_get_into_a_save) {
  const auto used = store();
  for (Snapshot& snapshot : cut(small_state(1), "a", 1, 4, 1)) used->write(snapshot);
  save(*used, small_state(2), "a", 1, 2);
  EXPECT_EQ(used->open("a")->verify(), Strings{});
  EXPECT_EQ(names_in(folder.path("checkpoints/a")).size(), 5u);
  used->discard("a");  // there is nothing to discard
  EXPECT_EQ(names(*used), Strings{"a"});
}

TEST_F(ShardedPlace, what_is_no_checkpoint_is_not_replaced) {
  fs::create_directories(folder.path("checkpoints/a/mine"));
  const auto used = store();
  const std::string error = error_of([&] { save(*used, small_state(1), "a", 1); });
  EXPECT_TRUE(has(error, "checkpoints/a: is there and is no checkpoint")) << error;
  used->discard("a");
  EXPECT_EQ(names_in(folder.path("checkpoints")), Strings{"a"});
  EXPECT_TRUE(fs::exists(folder.path("checkpoints/a/mine")));
  fs::remove(folder.path("checkpoints/a/mine"));
  save(*used, small_state(1), "a", 1);
  EXPECT_EQ(used->open("a")->verify(), Strings{});
}

TEST_F(ShardedPlace, a_tag_that_has_lost_its_manifest_gives_way) {
  const auto used = store();
  save(*used, small_state(1), "a", 1);
  fs::remove(file("a", "manifest.json"));
  EXPECT_EQ(names(*used), Strings{});
  save(*used, small_state(2), "a", 1);
  EXPECT_TRUE(same(read_all(*used->open("a")), small_state(2)));
  EXPECT_EQ(names_in(folder.path("checkpoints")), Strings{"a"});
}

TEST_F(ShardedPlace, a_folder_outside_of_the_run_has_one_owner_at_a_time) {
  ShardedStore::Options options;
  options.folder = folder.path("shared");
  auto one = store_at(folder.path("one"), calls, true, options);
  const std::string refusal = error_of([&] { store_at(folder.path("other"), calls, true, options); });
  EXPECT_TRUE(has(refusal, folder.path("shared")) && has(refusal, "another run") && has(refusal, "\"folder\""))
      << refusal;
  store_at(folder.path("other"), calls, false, options);  // a rank of the first run, or a reader
  one.reset();
  EXPECT_FALSE(fs::exists(folder.path("shared")));
  one = store_at(folder.path("other"), calls, true, options);
  save(*one, small_state(1), "a", 1);
  one.reset();
  EXPECT_EQ(names_in(folder.path("shared")), Strings{"a"});
}

// The lock goes with the folder, and another run may have the name.
TEST_F(ShardedPlace, a_folder_outside_of_the_run_that_was_moved_away_is_not_written_to_by_its_name) {
  ShardedStore::Options options;
  options.folder = folder.path("shared");
  const auto one = store_at(folder.path("one"), calls, true, options);
  save(*one, small_state(1), "a", 1);
  fs::rename(folder.path("shared"), folder.path("moved"));
  const auto other = store_at(folder.path("other"), calls, true, options);
  save(*other, small_state(2), "a", 1);
  for (const std::string& error :
       {error_of([&] { save(*one, small_state(3), "a", 1); }), error_of([&] { one->remove("a"); })})
    EXPECT_TRUE(has(error, folder.path("shared") + ": was moved away")) << error;
  EXPECT_TRUE(same(read_all(*other->open("a")), small_state(2)));
}

TEST_F(ShardedPlace, a_disk_that_takes_direct_writes_only_in_words_gets_others) {
  calls.lies_about_direct = true;
  const auto used = store();
  save(*used, large_state(1), "a", 1);
  EXPECT_EQ(used->open("a")->verify(), Strings{});
  EXPECT_TRUE(same(read_all(*used->open("a")), large_state(1)));
}

TEST_F(ShardedPlace, a_place_that_cannot_be_is_refused_when_it_is_opened) {
  std::ofstream(folder.path("file")) << "text";
  ShardedStore::Options options;
  options.folder = folder.path("file/checkpoints");
  const auto refusal = error_of([&] { store_at(folder.path(), calls, true, options); });
  EXPECT_TRUE(has(refusal, folder.path("file") + ": is no folder") && has(refusal, "\"folder\"")) << refusal;
  EXPECT_EQ(names_in(folder.path()), Strings{"file"});
}

TEST_F(ShardedPlace, a_disk_that_cannot_read_is_an_error_of_the_disk) {
  save(*store(), small_state(1), "a", 1);
  struct NoReads : TestCalls {
    int64_t pread(int, void*, size_t, uint64_t) override { return errno = EIO, -1; }
  } broken;
  const auto checkpoint = store_at(folder.path(), broken)->open("a");
  const std::string error = error_of([&] { read_all(*checkpoint); });
  EXPECT_TRUE(has(error, "rank-0000") && has(error, "Input/output error") && has(error, "tensor")) << error;
  EXPECT_FALSE(checkpoint->verify().empty());
}

TEST_F(ShardedPlace, a_file_that_shrinks_while_it_is_open_is_found) {
  save(*store(), {{"w", numbers({9000}, at::kFloat, 1)}}, "a", 1, 1);
  const auto checkpoint = store()->open("a");
  fs::resize_file(file("a", "rank-00000.safetensors"), 30000);
  const std::string error = error_of([&] { read_all(*checkpoint); });
  EXPECT_TRUE(has(error, "ends at byte 30000 instead of") && has(error, "cut short")) << error;
}

// In a process of its own, with file systems that only it sees: returns what went wrong there.
template <class Action>
int as_root_elsewhere(const Action& action) {
  if (::geteuid() != 0) {
    std::cout << "only root can mount here\n";
    return 0;
  }
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // the threads of LibTorch's pool stay behind
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(90);
    try {
      ::_exit(action());
    } catch (const std::exception& e) {
      std::cerr << e.what() << "\n";
      ::_exit(91);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 92;
}

TEST_F(ShardedPlace, a_disk_that_is_really_full_leaves_the_tags_as_they_are) {
  EXPECT_EQ(0, as_root_elsewhere([&] {
              if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=128k") != 0) return 1;
              for (const bool can_reserve : {true, false}) {
                calls.can_reserve = can_reserve;
                const auto used = store();
                save(*used, small_state(1), "a", 1);
                const std::string error = error_of([&] { save(*used, {{"w", at::zeros({100, 1000})}}, "b", 2, 1); });
                if (!has(error, "No space left on device") || !has(error, "bytes are free there")) return 2;
                used->discard("b");
                if (names_in(folder.path("checkpoints")) != Strings{"a"}) return 3;
                if (!used->open("a")->verify().empty()) return 4;
                save(*used, small_state(2), "a", 1);  // there is room again
                if (!same(read_all(*used->open("a")), small_state(2))) return 5;
              }
              return 0;
            }));
}

TEST_F(ShardedPlace, a_folder_that_cannot_be_written_is_read_by_others_and_refused_to_the_owner) {
  save(*store(), small_state(1), "a", 1);
  EXPECT_EQ(0, as_root_elsewhere([&] {
              const char* const path = folder.path().c_str();
              if (::mount(path, path, nullptr, MS_BIND, nullptr) != 0) return 1;
              if (::mount(nullptr, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) return 2;
              if (!same(read_all(*store(false)->open("a")), small_state(1))) return 3;
              const std::string error = error_of([&] { store(); });
              return has(error, "cannot write there") && has(error, "\"folder\"") ? 0 : 4;
            }));
}

}  // namespace
}  // namespace drivetrain::test
