// A store on a temporary folder, with file calls of a test.
#pragma once

#include <gtest/gtest.h>

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

// A store on a folder of its own, with chunks of 4096 bytes.
struct ShardedTest : ::testing::Test {
  Host host;
  TempFolder folder;
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
