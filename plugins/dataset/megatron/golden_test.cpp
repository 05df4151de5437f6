// "order": "megatron" beside what Megatron-Core 0.16.1 gave (tests/golden/data/megatron_data, by
// tests/golden/make/megatron_data.py), sample for sample.
#include <algorithm>
#include <filesystem>

#include "support/open_megatron.h"
#include "support/row_digest.h"

namespace drivetrain::test {
namespace {

const std::string kGolden = std::string(DRIVETRAIN_GOLDEN_DIR) + "/megatron_data";
constexpr int64_t kEod = 7;

// Names become paths below `folder`.
Value placed(const Value& path, const std::string& folder) {
  if (path.is_string()) return Value(folder + "/" + path.as_string());
  if (!path.is_array()) return path;
  Value::Array list;
  for (const Value& item : path.items()) list.push_back(placed(item, folder));
  return Value(std::move(list));
}

Value options_of(const Value& golden, const std::string& folder) {
  Value options = Value::object();
  options.set("order", "megatron");
  options.set("data_path", placed(*golden.find("data_path"), folder));
  for (const char* const key : {"split", "seq_length", "seed", "train_samples", "valid_samples", "reset_position_ids",
                                "reset_attention_mask", "eod_mask_loss"})
    if (const Value* const value = golden.find(key)) options.set(key, *value);
  if (golden.find("eod_mask_loss")) options.set("eod", kEod);
  return options;
}

// All samples of a part, three rows at a time.
void expect_equal(const OpenMegatron& opened, const OpenRun& run, DataPart part, const Value& wanted) {
  const auto count = static_cast<int64_t>(wanted.items().size());
  int64_t wrong = 0;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t rows = std::min(int64_t{3}, run.rows - k % run.rows);
    const Batch batch = opened.read(k / run.rows + 1, k % run.rows, rows, part);
    for (int64_t row = 0; row < rows && k + row < count; ++row)
      wrong += row_digest(batch, row) != wanted.items()[static_cast<size_t>(k + row)].as_string();
    k += rows - 1;
  }
  EXPECT_EQ(wrong, 0) << "of " << count << " samples";
}

TEST(MegatronOrder, gives_the_samples_of_megatron_core) {
  const Value golden = read_json_file(kGolden + "/cases.json");
  ASSERT_GE(golden.find("cases")->members().size(), 12u);
  const OpenRun run{.rows = 7, .steps = 2};
  for (const auto& [name, golden_case] : golden.find("cases")->members()) {
    SCOPED_TRACE(name);
    const OpenMegatron opened(options_of(golden_case, kGolden), run);
    const Value& train = *golden_case.find("train");
    EXPECT_EQ(opened.facts.steps, static_cast<int64_t>(train.items().size()) / run.rows);
    expect_equal(opened, run, DataPart::train, train);
    expect_equal(opened, run, DataPart::validation, *golden_case.find("valid"));
  }
}

TEST(MegatronOrder, asks_for_the_samples_of_the_run_by_default) {
  const Value golden = *read_json_file(kGolden + "/cases.json").find("cases")->find("last_epoch_apart");
  Value options = options_of(golden, kGolden);
  options.erase("train_samples");
  const OpenRun run{.rows = 5, .steps = 15};
  expect_equal(OpenMegatron(options, run), run, DataPart::train, *golden.find("train"));
}

class KeptIndex : public ::testing::Test {
 protected:
  KeptIndex() {
    for (const char* const name : {"cut.bin", "cut.idx"})
      std::filesystem::copy_file(kGolden + "/" + name, folder_.path(name));
    golden_ = *read_json_file(kGolden + "/cases.json").find("cases")->find("last_epoch_apart");
  }
  // Megatron-Core's own files, with our path in their description.
  std::string place_megatrons_index(const std::string& folder) {
    std::filesystem::create_directories(folder);
    std::string base;
    for (const auto& file : std::filesystem::directory_iterator(kGolden + "/index")) {
      const std::string name = file.path().filename().string(), to = folder + "/" + name;
      std::filesystem::copy_file(file.path(), to);
      if (!name.ends_with("-description.txt")) continue;
      std::ifstream description(file.path());
      std::string text{std::istreambuf_iterator<char>(description), {}};
      std::ofstream(to) << text.replace(text.find("PREFIX"), 6, folder_.path("cut"));
      base = to.substr(0, to.size() - std::string("-description.txt").size());
    }
    return base;
  }
  // Whether it says that it read an index of the training part from this folder.
  static bool was_read(const OpenMegatron& opened, const std::string& folder) {
    return std::any_of(opened.host.log.lines.begin(), opened.host.log.lines.end(), [&](const std::string& line) {
      return line.find("train index") != std::string::npos && line.ends_with(folder);
    });
  }

  TempFolder folder_;
  Value golden_;
  const OpenRun run_{.rows = 5, .steps = 15};
};

TEST_F(KeptIndex, megatrons_own_is_found_and_read) {
  const std::string base = place_megatrons_index(folder_.path("cut/cache/GPTDataset_indices"));
  const Value options = options_of(golden_, folder_.path());
  {
    const OpenMegatron opened(options, run_);
    EXPECT_TRUE(was_read(opened, folder_.path("cut/cache/GPTDataset_indices")));
    expect_equal(opened, run_, DataPart::train, *golden_.find("train"));
  }
  Value other = options;
  other.set("seed", 1);
  EXPECT_TRUE(OpenMegatron(other, run_).host.log.lines.empty()) << "it is another seed's";
  overwrite<char>(base + "-shuffle_index.npy", 0, 'x');
  EXPECT_NE(error_of([&] { OpenMegatron(options, run_); }).find("shuffle_index.npy"), std::string::npos);
}

TEST_F(KeptIndex, ours_is_made_once_and_read_again) {
  Value options = options_of(golden_, folder_.path());
  options.set("index_cache", folder_.path("kept"));
  EXPECT_TRUE(OpenMegatron(options, run_).host.log.lines.empty()) << "it is made";
  const OpenMegatron opened(options, run_);
  EXPECT_TRUE(was_read(opened, folder_.path("kept")));
  expect_equal(opened, run_, DataPart::train, *golden_.find("train"));
  expect_equal(opened, run_, DataPart::validation, *golden_.find("valid"));
}

}  // namespace
}  // namespace drivetrain::test
