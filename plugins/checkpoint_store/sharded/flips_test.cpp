// checkpoint_store/sharded: random flipped bits and cuts of a checkpoint of many chunks, each found at its place. A
// hundred of them; DRIVETRAIN_ALL_FLIPS=1: 10,000.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "test_saves.h"

namespace drivetrain::test {
namespace {

using ShardedFlips = ShardedTest;

TEST_F(ShardedFlips, random_flips_and_cuts_of_a_large_checkpoint_are_found_at_their_place) {
  const int tries = std::getenv("DRIVETRAIN_ALL_FLIPS") ? 10000 : 100;
  State large;
  for (int i = 0; i < 5; ++i) large["w" + std::to_string(i)] = numbers({700 + 50 * i, 1111}, at::kFloat, i);
  save(*store(), large, "b", 2, 3);
  const auto open = store()->open("b");
  const auto problem = [&] {
    const std::vector<std::string> problems = open->verify();
    return problems.empty() ? "" : problems.front();
  };
  std::mt19937_64 random(14);
  int missed = 0;
  for (int i = 0; i < tries; ++i) {
    const std::string name = concat("rank-0000", random() % 3, ".safetensors"), path = file("b", name);
    const uint64_t bytes = std::filesystem::file_size(path), bit = random() % (8 * bytes);
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    char byte = 0;
    ASSERT_EQ(::pread(descriptor, &byte, 1, static_cast<off_t>(bit / 8)), 1);
    const char flipped = static_cast<char>(byte ^ (1 << bit % 8));
    ASSERT_EQ(::pwrite(descriptor, &flipped, 1, static_cast<off_t>(bit / 8)), 1);
    const uint64_t begin = bit / 8 / 4096 * 4096;
    const std::string found = problem();
    missed += found.find(concat(" bytes ", begin, " to ")) == std::string::npos;
    ASSERT_EQ(::pwrite(descriptor, &byte, 1, static_cast<off_t>(bit / 8)), 1);
    ::close(descriptor);
    if (i % 10 != 0) continue;
    const std::string whole = folder.path("whole");
    std::filesystem::copy_file(path, whole, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path, bit / 8);
    missed += problem().find(concat("cut short at byte ", bit / 8)) == std::string::npos;
    std::filesystem::copy_file(whole, path, std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_EQ(missed, 0) << "of " << tries;
  EXPECT_TRUE(open->verify().empty());
}

}  // namespace
}  // namespace drivetrain::test
