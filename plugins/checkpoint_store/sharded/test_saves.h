// A store on a temporary folder, with file calls of a test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <drivetrain/toolkit/files/durable.h>

#include "sharded.h"

#include <drivetrain/testkit/checkpoint_store/states.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "test_calls.h"

namespace drivetrain::test {

using sharded::ShardedStore;

// Where folders of these tests lie: in memory where that has room and takes direct writes as a disk does, since
// thousands of them come and go, and some disks take milliseconds to remove one.
inline std::filesystem::path scratch() {
  constexpr uint64_t kRoom = uint64_t{256} << 20;
  const std::filesystem::path memory = "/dev/shm";
  struct statvfs facts = {};
  const int file = ::open(memory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (file >= 0) ::close(file);
  const bool fits = file >= 0 && ::statvfs(memory.c_str(), &facts) == 0 && facts.f_bavail * facts.f_frsize > kRoom;
  return fits ? memory : std::filesystem::temp_directory_path();
}

// A store on a folder of its own, with chunks of 4096 bytes.
struct ShardedTest : ::testing::Test {
  Host host;
  TempFolder folder{scratch()};
  TestCalls calls;

  std::unique_ptr<ShardedStore> store_at(const std::string& output_dir, FileCalls& with, bool owner = true,
                                         ShardedStore::Options options = {}) {
    auto store = std::make_unique<ShardedStore>(options, host.services, with, 4096);
    store->open_place(output_dir, owner);
    return store;
  }
  std::unique_ptr<ShardedStore> store(bool owner = true) { return store_at(folder.path(), calls, owner); }

  std::string file(const std::string& tag, const std::string& name) const {
    return folder.path("checkpoints/" + tag + "/" + name);
  }
};

}  // namespace drivetrain::test
