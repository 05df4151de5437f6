// Rows of published tables as configs, and profiles: what is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "predict/published.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

const std::string kPublished = DRIVETRAIN_SOURCE_DIR "/configs/published";

TEST(PublishedRows, are_configs_that_a_user_would_write) {
  const PublishedTable table = read_published("internevo_parallel_tgs", kPublished);
  const Value& config = table.rows.back().config;
  EXPECT_EQ(table.rows.back().ranks, 1024);
  EXPECT_TRUE(table.rows.back().held_back);
  EXPECT_EQ(config.find("tensor_parallel")->find("size")->as_int(), 2);
  EXPECT_EQ(config.find("train_batch_size")->as_int(), 1024 / 2 * 4 * 4);
  EXPECT_EQ(config.find("zero_optimization")->find("stage")->as_int(), 1);
  EXPECT_EQ(config.find("zero_optimization")->find("group_size")->as_int(), 4);
  const Value& alone = table.rows[15].config;
  EXPECT_FALSE(table.rows[15].held_back);
  EXPECT_EQ(alone.find("train_batch_size")->as_int(), 1024 * 2 * 4);
  EXPECT_EQ(alone.find("zero_optimization")->find("group_size")->as_int(), 8);
  EXPECT_EQ(table.rows.front().config.find("zero_optimization")->find("group_size"), nullptr);
  const PublishedTable speed = read_published("xtuner_speed", kPublished);
  EXPECT_EQ(speed.rows[4].config.find("context_parallel")->find("params")->find("size")->as_int(), 16);
  EXPECT_EQ(speed.rows[4].config.find("train_batch_size")->as_int(), 32) << "as many as ranks, whatever shares a row";
}

TEST(PublishedRows, every_constant_of_a_shipped_profile_says_where_it_is_from) {
  for (const char* name : {"internevo", "internevo_memory", "internevo_memory_fsdp", "xtuner"})
    EXPECT_NO_THROW(read_profile(name, kPublished)) << name;
}

class BrokenTables : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("published_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    fs::copy(kPublished, folder_, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::ifstream in(folder_ / file);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    std::ofstream(folder_ / file) << text.replace(at, from.size(), to);
  }
  std::string refusal(const std::string& name) const {
    try {
      read_published(name, folder_.string());
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      return e.what();
    }
    return "accepted";
  }
  void expect_refused(const std::string& name, std::initializer_list<const char*> words) const {
    const std::string text = refusal(name);
    for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
  }

  fs::path folder_;
};

TEST_F(BrokenTables, a_table_that_is_not_there_is_refused_with_those_that_are) {
  expect_refused("xtuner_sped", {"xtuner_sped", "did you mean \"xtuner_speed\"", "internevo_parallel_tgs"});
}

TEST_F(BrokenTables, a_row_without_a_quantity_is_refused_by_line_and_column_name) {
  replace("tables.json", R"("model": "Llama2-7B", "gpus": 8, "seq_len_label": "8k", "seq_len": 8192)",
          R"("model": "Llama2-7B", "gpus": 8, "seq_len_label": "8k")");
  expect_refused("xtuner_speed", {"tables.json:", "seq_len (seq_length)", "constants"});
}

TEST_F(BrokenTables, a_model_that_is_not_there_and_ranks_that_do_not_divide_are_refused) {
  replace("tables.json", R"("model": "Llama2-7B", "gpus": 8)", R"("model": "Llama9-7B", "gpus": 8)");
  expect_refused("xtuner_speed", {"Llama9-7B"});
  replace("tables.json", R"("gpus": 4, "zero1": -1, "tp": 4)", R"("gpus": 5, "zero1": -1, "tp": 4)");
  expect_refused("internevo_gpu_memory", {"5 ranks", "tensor 4"});
}

TEST_F(BrokenTables, a_profile_without_a_constant_or_its_origin_is_refused_by_place_key_and_remedy) {
  replace("systems.json", R"("owner_s": 0,)", "");
  expect_refused("xtuner_speed", {"systems.json:", "no time.owner_s", "from"});
  replace("systems.json", R"("time.overlap": "assumed)", R"("time.over": "assumed)");
  replace("systems.json", R"("step_s": 0,)", R"("step_s": 0, "owner_s": 0,)");
  expect_refused("xtuner_speed", {"systems.json:", "where time.overlap is from", "data sheet"});
}

TEST_F(BrokenTables, an_unknown_profile_is_refused_with_those_that_there_are) {
  try {
    read_profile("internevos", folder_.string());
    FAIL();
  } catch (const Error& e) {
    for (const char* word : {"no profile", "internevos", "systems.json", "did you mean \"internevo\"", "--profile"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " is not in: " << e.what();
  }
}

}  // namespace
}  // namespace drivetrain
