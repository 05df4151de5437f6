// Hardware files: those of configs/hardware are whole, and one that is not is refused by key, place and remedy.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/product_fit.h"
#include "predict/hardware.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

const std::string kFolder = DRIVETRAIN_SOURCE_DIR "/configs/hardware";

class HardwareFile : public testing::Test {
 protected:
  void SetUp() override { folder_ = fs::temp_directory_path() / ("hardware_test_" + std::to_string(getpid())); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string written(const Value& value) const {
    fs::create_directories(folder_);
    const std::string path = (folder_ / "machine.json").string();
    std::ofstream(path) << value.to_json(2);
    return path;
  }
  static Value whole() { return read_json_file(kFolder + "/h100.json"); }
  static std::string refusal(const std::string& path) {
    try {
      read_hardware(path, kFolder);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      return e.what();
    }
    return "accepted";
  }
  static void expect_says(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
  }

  fs::path folder_;
};

Value* member(Value& object, const std::string& key) {
  for (Value::Member& m : object.members())
    if (m.key == key) return &m.value;
  return nullptr;
}

TEST_F(HardwareFile, those_of_the_repository_are_read_by_name_and_written_back_alike) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    const Hardware hardware = read_hardware(entry.path().stem().string(), kFolder);
    const Hardware again = read_hardware(written(hardware_value(hardware)), kFolder);
    EXPECT_TRUE(hardware_value(hardware) == hardware_value(again)) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4u);
}

TEST_F(HardwareFile, every_rate_that_is_missing_is_named_with_its_place_and_what_to_do) {
  const char* const rates[][2] = {{"products", "share"},   {"attention", "share"},    {"memory", "gb_per_s"},
                                  {"memory", "gib"},       {"host_link", "gb_per_s"}, {"host_link", "latency_us"},
                                  {"network", "gb_per_s"}, {"network", "share"},      {"pcie", "gb_per_s"}};
  for (const auto& [group, key] : rates) {
    Value value = whole();
    ASSERT_TRUE(member(value, group)->erase(key));
    const std::string text = refusal(written(value)), full = std::string(group) + "." + key;
    expect_says(text, {full.c_str(), "machine.json", "is missing", "bench hardware"});
  }
  Value value = whole();
  value.erase("network");
  expect_says(refusal(written(value)), {"machine.json:1:1  network.gb_per_s", "network.latency_us", "is missing"});
}

TEST_F(HardwareFile, what_is_out_of_range_unknown_or_of_another_type_is_refused) {
  Value value = whole();
  member(value, "memory")->set("gb_per_s", 0);
  expect_says(refusal(written(value)), {"memory.gb_per_s", "machine.json:"});
  value = whole(), member(value, "products")->set("share", 1.5);
  expect_says(refusal(written(value)), {"products.share", "1.5"});
  value = whole(), member(value, "network")->set("gbps", 400);
  expect_says(refusal(written(value)), {"network.gbps", "is not an option"});
  value = whole(), value.set("peak_tflops", Value::object());
  expect_says(refusal(written(value)), {"peak_tflops", "float32"});
  value = whole(), member(value, "peak_tflops")->set("bfloat16", "fast");
  expect_says(refusal(written(value)), {"peak_tflops.bfloat16", "above 0"});
  expect_says(refusal("h10"), {"no hardware file", "h100", "bench hardware"});
  expect_says(refusal(written(Value::array())), {"an object"});
}

TEST(ProductFit, finds_the_numbers_that_rates_were_made_with) {
  std::vector<MeasuredProduct> products;
  for (const double rows : {64.0, 256.0, 1024.0})
    for (const double width : {128.0, 512.0, 1024.0})
      products.push_back({rows, width, 2 * width, 1e11 / ((1 + 32 / rows) * (1 + 16 / width) * (1 + 8 / width))});
  const ProductFit fit = fit_products(products);
  EXPECT_LT(fit.error, 1e-9);
  EXPECT_EQ(fit.rates.half_rows, 32);
  EXPECT_EQ(fit.rates.half_width, 16);
  EXPECT_NEAR(fit.peak * fit.rates.share, 1e11, 1);
}

}  // namespace
}  // namespace drivetrain
