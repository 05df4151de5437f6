// checkpoint_store/sharded: what tools that only read are told.
#include <filesystem>
#include <fstream>

#include "test_saves.h"

namespace drivetrain::test {
namespace {

void write_over(const std::string& path, std::streamoff at) {
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(at) << '!';
}

TEST_F(ShardedTest, verify_names_file_bytes_and_the_tensors_in_them) {
  Snapshot snapshot{"a", 1, 0, 1, {}};
  for (const char* const name : {"u", "v", "w", "x", "y"})
    snapshot.slices.push_back({name, {512, 1}, {0, 0, 512, 1}, numbers({512, 1}, at::kFloat, 1)});  // half a chunk each
  const auto used = store();
  used->commit("a", 1, Value::object(), {used->write(snapshot)});
  write_over(file("a", "rank-00000.safetensors"), 4096 + 2050);
  auto found = used->open("a")->verify();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].find("rank-00000.safetensors: bytes 4096 to 8192 "), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("in it: tensor \"u\", tensor \"v\""), std::string::npos) << found[0];
  EXPECT_EQ(found[0].find("\"w\""), std::string::npos) << found[0];
  std::filesystem::remove(file("a", "rank-00000.safetensors"));
  found = used->open("a")->verify();
  EXPECT_NE(found[0].find("is missing"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("tensor \"w\" and 2 more"), std::string::npos) << found[0];
}

TEST_F(ShardedTest, problems_are_seen_without_reading_data) {
  save(*store(), small_state(1), "a", 1, 3);
  std::filesystem::resize_file(file("a", "rank-00002.safetensors"), 5);
  std::filesystem::remove(file("a", "rank-00001.index.json"));
  auto found = store(false)->problems();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_NE(found[0].text.find("rank-00001.index.json: is missing"), std::string::npos) << found[0].text;
  EXPECT_NE(found[1].text.find("rank-00002.safetensors: has 5 bytes instead of"), std::string::npos) << found[1].text;
  std::filesystem::remove(file("a", "manifest.json"));
  found = store(false)->problems();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tag, "a");
  EXPECT_FALSE(found[0].left_over);
}

TEST_F(ShardedTest, tags_are_found_wherever_their_folder_lies) {
  save(*store(), small_state(1), "a", 1);
  std::filesystem::rename(folder.path("checkpoints"), folder.path("elsewhere"));
  ShardedStore tool({.folder = "kept/here"}, host.services, calls, 4096);
  EXPECT_FALSE(tool.open_tags(folder.path()));
  EXPECT_TRUE(tool.open_tags(folder.path("elsewhere/")));
  EXPECT_EQ(names(tool), std::vector<std::string>{"a"});
  EXPECT_TRUE(same(read_all(*tool.open("a")), small_state(1)));
  EXPECT_EQ(tool.tags()[0].files, 5U);
}

}  // namespace
}  // namespace drivetrain::test
