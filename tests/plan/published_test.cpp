// Rows of published tables by the planner, against the bounds that it promises.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "predict/published_report.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

const std::string kPublished = DRIVETRAIN_SOURCE_DIR "/configs/published",
                  kHardware = DRIVETRAIN_SOURCE_DIR "/configs/hardware";

TEST(Published, throughput_is_within_five_percent_on_average_of_every_table) {
  size_t rows = 0;
  for (const std::string& name : published_names(kPublished)) {
    const PublishedTable table = read_published(name, kPublished, kHardware);
    const TableResult result = predict_table(table);
    EXPECT_LE(result.tgs.mean, 0.05) << name;
    EXPECT_LE(result.tgs.worst, 0.12) << name;
    rows += result.tgs.rows;
  }
  EXPECT_GE(rows, 51u) << "51 rows have a TGS";
}

TEST(Published, memory_is_within_five_percent_in_the_middle_and_twelve_at_most) {
  const PublishedTable table = read_published("internevo_gpu_memory", kPublished, kHardware);
  const TableResult result = predict_table(table);
  EXPECT_EQ(result.gib.rows, 10u) << "of eleven rows one is at the device's limit";
  EXPECT_LE(result.gib.median, 0.05);
  EXPECT_LE(result.gib.worst, 0.12);
}

TEST(Published, wider_groups_scale_worse_as_the_tables_show) {
  const PublishedTable table = read_published("internevo_parallel_tgs", kPublished, kHardware);
  const TableResult result = predict_table(table);
  const auto tgs = [&](int64_t ranks, int64_t owners) {
    for (const RowResult& row : result.rows)
      if (row.row->ranks == ranks && row.row->shard_ranks == owners) return row.time->tgs;
    ADD_FAILURE() << "no row of " << ranks;
    return 0.0;
  };
  EXPECT_NEAR(tgs(1024, -1) / tgs(8, -1), 0.56, 0.05);
  EXPECT_NEAR(tgs(1024, 8) / tgs(8, 8), 0.89, 0.05);
}

TEST(Published, every_assumption_is_in_the_text_and_in_the_json) {
  const PublishedTable table = read_published("xtuner_speed", kPublished, kHardware);
  const TableResult result = predict_table(table);
  const std::string text = table_text(table, result);
  ASSERT_FALSE(table.system.assumptions.empty());
  for (const std::string& line : table.system.assumptions) EXPECT_NE(text.find(line), std::string::npos) << line;
  const Value json = table_value(table, result);
  EXPECT_EQ(json.find("assumptions")->items().size(), table.system.assumptions.size());
  EXPECT_EQ(json.find("rows")->items().size(), 5u);
  EXPECT_EQ(parse_json(json.to_json(), "table"), json);
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
      read_published(name, folder_.string(), kHardware);
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

}  // namespace
}  // namespace drivetrain
