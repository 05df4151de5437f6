// Hardware files: those of configs/hardware are whole, and one that is not is refused by key, place and remedy.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/optimizer_step.h"
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

TEST_F(HardwareFile, shares_of_kinds_of_passes_are_those_of_updates_unless_given) {
  Value value = whole();
  for (const char* share : {"arithmetic_share", "norm_share"}) member(value, "memory")->erase(share);
  const Hardware plain = read_hardware(written(value), kFolder);
  EXPECT_EQ(plain.pass_rate(), plain.memory_rate());
  EXPECT_EQ(plain.norm_rate(), plain.memory_rate());
  member(value, "memory")->set("arithmetic_share", 0.25), member(value, "memory")->set("norm_share", 0.125);
  const Hardware given = read_hardware(written(value), kFolder);
  EXPECT_EQ(given.memory_rate(), plain.memory_rate());
  EXPECT_EQ(given.pass_rate(), 2 * given.norm_rate());
  member(value, "memory")->set("norm_share", 1.5);
  expect_says(refusal(written(value)), {"memory.norm_share", "machine.json:"});
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
  expect_says(refusal(written(value)), {"peak_tflops.bfloat16 is \"fast\"", "a number of TFLOPS"});
  expect_says(refusal("h10"), {"no hardware file", "h100", "bench hardware"});
  expect_says(refusal(written(Value::array())), {"an object"});
}

TEST_F(HardwareFile, a_share_or_rate_that_is_next_to_nothing_is_refused_where_0_says_that_there_is_none) {
  const char* const figures[][2] = {{"products", "experts_share"},
                                    {"memory", "arithmetic_share"},
                                    {"memory", "norm_share"},
                                    {"host_memory", "share"},
                                    {"host_memory", "gb_per_s"}};
  for (const auto& [group, key] : figures) {
    SCOPED_TRACE(key);
    Value value = whole();
    for (const double small : {1e-300, 1e-4}) {
      member(value, group)->set(key, small);
      const std::string text = refusal(written(value)), full = concat(group, ".", key, " is ", Value(small).to_json());
      expect_says(text, {full.c_str(), "machine.json:", "0 or at least 0.001", "bench hardware"});
    }
    for (const double fine : {0.0, 1e-3}) {
      member(value, group)->set(key, fine);
      EXPECT_EQ(refusal(written(value)), "accepted") << fine;
    }
    member(value, group)->set(key, -1e-300);
    expect_says(refusal(written(value)), {key, "machine.json:"});
  }
}

TEST_F(HardwareFile, peaks_are_of_types_that_a_plan_asks_for_and_within_what_a_machine_can_have) {
  for (const double wrong : {0.0, -1.0, 1e-300, 9e-10, 1.1e6, 1e300}) {
    Value value = whole();
    member(value, "peak_tflops")->set("float8_blocks", wrong);
    const std::string full = concat("  peak_tflops.float8_blocks is ", Value(wrong).to_json());
    expect_says(refusal(written(value)),
                {full.c_str(), "machine.json:", "TFLOPS from 1e-09 to 1e+06", "bench hardware"});
  }
  for (const char* type : {"float64", "float32", "bfloat16", "float16", "float8", "float8_blocks"})
    for (const double fine : {1e-9, 1e6}) {
      Value value = whole();
      member(value, "peak_tflops")->set(type, fine);
      EXPECT_EQ(refusal(written(value)), "accepted") << type << fine;
    }
  Value value = whole();
  member(value, "peak_tflops")->set("_float8", "a comment");
  EXPECT_EQ(refusal(written(value)), "accepted");
  member(value, "peak_tflops")->set("float8_block", 1490);
  expect_says(refusal(written(value)),
              {"machine.json:", "  peak_tflops.float8_block is not a type that a plan asks for",
               "did you mean \"float8_blocks\"?"});
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

TEST(OptimizerPieces, are_cut_as_asked_and_cover_all_in_place) {
  const OptimizerPieces pieces(10, {2, 2}, at::kCPU);
  ASSERT_EQ(pieces.chunk.size(), 3u);
  EXPECT_EQ(pieces.chunk[1].layout.global_shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(pieces.chunk[2].layout.global_shape, (std::vector<int64_t>{2}));
  int64_t begin = 0;
  for (const Trainable& piece : pieces.chunk) {
    EXPECT_EQ(piece.value.data_ptr<float>(), pieces.value.data_ptr<float>() + begin);
    EXPECT_EQ(piece.grad.data_ptr<float>(), pieces.grad.data_ptr<float>() + begin);
    begin += piece.grad.numel();
  }
  EXPECT_EQ(begin, 10);
}

}  // namespace
}  // namespace drivetrain
