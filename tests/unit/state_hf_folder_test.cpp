#include "state/hf_folder.h"

#include <ATen/ops/full.h>

#include "support/write_safetensors.h"
#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;

class HfFolderRead : public ::testing::Test {
 protected:
  // A shard whose tensors are 8 bytes each.
  void shard(const std::string& file, const std::vector<std::string>& names) {
    std::vector<SafetensorsItem> items;
    for (const std::string& name : names) items.push_back({name, at::kFloat, {2}});
    write_safetensors(folder_ / file, items, {{"format", "pt"}},
                      [](const std::string&) { return at::full({2}, 1.0f); });
  }
  void index(const std::string& weight_map, const std::string& metadata = R"({"total_size": 24})") {
    write_bytes(folder_ / "model.safetensors.index.json",
                "{\"metadata\": " + metadata + ",\n\"weight_map\": " + weight_map + "}");
  }
  Caught open_error() {
    return error_of([&] { HfFolder folder(folder_.path()); });
  }

  TempFolder folder_;
  const std::string first_ = "model-00001-of-00002.safetensors", second_ = "model-00002-of-00002.safetensors";
  const std::string good_ = R"({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors"})";
};

TEST_F(HfFolderRead, shards_are_one_lookup) {
  shard(first_, {"a"});
  shard(second_, {"b", "c"});
  index(good_);
  const HfFolder folder(folder_.path());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(folder.file_of("c")->path(), folder_ / second_);
  EXPECT_EQ(folder.file_of("d"), nullptr);
  EXPECT_TRUE(folder.warnings().empty());
}

TEST_F(HfFolderRead, a_wrong_total_size_is_a_warning) {
  shard(first_, {"a"});
  shard(second_, {"b", "c"});
  index(good_, R"({"total_size": 25, "total_parameters": 6})");
  const HfFolder folder(folder_.path());
  ASSERT_EQ(folder.warnings().size(), 1u);
  EXPECT_HAS(folder.warnings()[0], "index.json:1:29: total_size says 25 bytes, the tensors have 24");
  index(good_, "{}");
  EXPECT_TRUE(HfFolder(folder_.path()).warnings().empty());
}

TEST_F(HfFolderRead, the_single_file_wins_over_an_index) {
  shard("model.safetensors", {"x"});
  index("{}");
  EXPECT_EQ(HfFolder(folder_.path()).names(), std::vector<std::string>{"x"});
}

TEST_F(HfFolderRead, everything_wrong_with_an_index_is_told_at_once) {
  shard(first_, {"a", "c", "extra"});
  shard(second_, {"c"});
  index(R"({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors", "d": "gone.safetensors", "e": "../x", "f": "/etc/passwd", "g": 1})");
  const Caught caught = open_error();
  EXPECT_EQ(caught.code, ErrorCode::config);
  EXPECT_HAS(caught.text, "tensor \"b\" should be in " + second_ + ", which does not have it");
  EXPECT_HAS(caught.text, "tensor \"c\" is in two files, " + first_ + " and " + second_);
  EXPECT_HAS(caught.text, "does not list tensor \"extra\", which " + first_ + " has");
  EXPECT_HAS(caught.text, "names a file that is not there: " + (folder_ / "gone.safetensors"));
  EXPECT_HAS(caught.text, "tensor \"e\": the file must be a plain name in this folder, found \"../x\"");
  EXPECT_HAS(caught.text, "tensor \"f\": the file must be a plain name");
  EXPECT_HAS(caught.text, "tensor \"g\": the file must be a plain name in this folder, found 1");
}

TEST_F(HfFolderRead, an_index_of_another_form_is_refused) {
  for (const char* text : {"{}", R"({"weight_map": {}})", R"({"weight_map": []})"}) {
    write_bytes(folder_ / "model.safetensors.index.json", text);
    EXPECT_HAS(open_error().text, "weight_map must be an object");
  }
  write_bytes(folder_ / "model.safetensors.index.json", "{\"weight_map\": ");
  EXPECT_HAS(open_error().text, "model.safetensors.index.json:1:");
}

TEST_F(HfFolderRead, a_damaged_shard_is_an_io_error) {
  shard(first_, {"a"});
  shard(second_, {"b", "c"});
  index(good_);
  std::filesystem::resize_file(folder_ / second_, std::filesystem::file_size(folder_ / second_) - 3);
  const Caught caught = open_error();
  EXPECT_EQ(caught.code, ErrorCode::io);
  EXPECT_HAS(caught.text, second_);
  EXPECT_HAS(caught.text, "3 bytes are missing");
}

TEST_F(HfFolderRead, a_folder_with_nothing_to_read_says_what_it_is) {
  EXPECT_HAS(open_error().text, "has neither model.safetensors nor model.safetensors.index.json");
  write_bytes(folder_ / "adapter_config.json", "{}");
  EXPECT_HAS(open_error().text, "is the folder of an adapter (adapter_config.json)");
  write_bytes(folder_ / "pytorch_model.bin", "");
  EXPECT_HAS(open_error().text, "has only pytorch_model.bin, a pickle, which could run code and is not read");
  EXPECT_HAS(error_of([&] { HfFolder folder(folder_ / "none"); }).text, "is not a folder");
}

TEST_F(HfFolderRead, a_config_that_is_not_there_is_named) {
  shard("model.safetensors", {"x"});
  const HfFolder folder(folder_.path());
  EXPECT_HAS(error_of([&] { folder.config(); }).text, folder_ / "config.json");
  write_bytes(folder_ / "config.json", R"({"model_type": "gpt2", "unknown": [1]})");
  EXPECT_EQ(folder.config().find("model_type")->as_string(), "gpt2");
}

TEST_F(HfFolderRead, the_golden_folders_open) {
  EXPECT_EQ(HfFolder(golden("gpt2_tiny/model")).names().size(), 28u);
  EXPECT_EQ(HfFolder(golden("llama_tiny/model")).config().find("head_dim")->as_int(), 16);
}

}  // namespace
}  // namespace drivetrain
