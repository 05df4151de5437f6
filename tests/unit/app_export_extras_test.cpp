// What stands beside the weights of an exported folder, as far as no tokenizer is opened; with one: tests/program.
#include <gtest/gtest.h>

#include <fstream>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "plugin/discover.h"
#include "rendezvous/rendezvous.h"
#include "train/export_extras.h"

namespace drivetrain::test {
namespace {

struct KeptLog : Log {
  std::string text;
  void write(LogLevel, const std::string& line) override { text += line + "\n"; }
  void progress(const std::string&) override {}
};

struct ExportExtras : ::testing::Test {
  // config.json and generation_config.json of the folder to be written.
  std::pair<Value, Value> made(ExportSource source, const std::string& config) {
    WeightRules rules;
    rules.config = parse_json(config, "test");
    if (source.config.is_null()) source.config = Value::object();
    const Registry registry(SearchPath::standard({}, {}, ""));
    const auto store = make_local_store();
    const Services services{log_, *store};
    extras_ = export_extras(rules, source, TokenizerReaders(registry, services), log_);
    return {rules.config, extras_.generation};
  }
  // A folder of initial weights.
  std::string origin(const std::string& generation) const {
    std::ofstream(folder_.path() + "/config.json") << "{}";
    std::ofstream(folder_.path() + "/generation_config.json") << generation;
    return folder_.path();
  }
  static std::string ends(const Value& file) { return file.find("eos_token_id")->to_json(); }

  const TempFolder folder_;
  KeptLog log_;
  HfExtras extras_;
};

TEST_F(ExportExtras, what_ends_an_answer_of_the_data_comes_before_what_ended_texts) {
  const auto [config, generation] = made({{}, origin(R"({"eos_token_id": [7, 9], "top_p": 0.9})"), {5, 7}},
                                         R"({"eos_token_id": 7, "dtype": "float32"})");
  EXPECT_EQ(ends(config), "[5,7]");
  EXPECT_EQ(ends(generation), "[5,7,9]");
  EXPECT_EQ(generation.find("top_p")->as_double(), 0.9);
  EXPECT_EQ(ends(made({{}, "", {5}}, R"({"eos_token_id": null})").first), "5");
}

TEST_F(ExportExtras, where_nobody_says_anything_nothing_is_said) {
  const std::string config = R"({"bos_token_id": null, "eos_token_id": null, "vocab_size": 256})";
  const auto [written, generation] = made({}, config);
  EXPECT_EQ(written, parse_json(config, "test"));
  EXPECT_TRUE(generation.is_null());
  EXPECT_TRUE(extras_.files.empty());
  EXPECT_EQ(extras_.dtype, at::kFloat);
  EXPECT_EQ(made({{}, "/no/such/folder", {}}, config).first, written) << "a checkpoint, or a folder that is gone";
}

TEST_F(ExportExtras, a_broken_file_of_the_origin_is_told_and_does_not_cost_the_weights) {
  const auto [config, generation] = made({{}, origin("{"), {}}, R"({"eos_token_id": 3})");
  EXPECT_TRUE(generation.is_null());
  EXPECT_EQ(ends(config), "3");
  EXPECT_NE(log_.text.find("generation_config.json"), std::string::npos) << log_.text;
}

TEST_F(ExportExtras, the_type_is_the_asked_one_else_the_origin_s) {
  const auto dtype = [&](const char* run, const char* config) {
    ExportSource source;
    source.config = parse_json(run, "test");
    made(source, config);
    return extras_.dtype;
  };
  EXPECT_EQ(dtype("{}", R"({"dtype": "bfloat16"})"), at::kBFloat16);
  EXPECT_EQ(dtype(R"({"save_dtype": "float16"})", R"({"dtype": "bfloat16"})"), at::kHalf);
  EXPECT_EQ(dtype(R"({"save_dtype": null})", R"({"dtype": "float16"})"), at::kHalf);
  EXPECT_EQ(dtype("{}", R"({"dtype": "float64"})"), at::kFloat) << "weights are float32 here";
  EXPECT_THROW(dtype(R"({"save_dtype": "float30"})", "{}"), Error);
}

TEST(TokenizerOfConfig, is_the_run_s_or_that_of_its_dataset_however_deep) {
  const auto found = [](const char* config) {
    const Value parsed = parse_json(config, "test");
    const Value* const section = tokenizer_section(parsed);
    return section ? section->to_json() : "none";
  };
  EXPECT_EQ(found(R"({"tokenizer": "bytes", "dataset": {"params": {"tokenizer": "bpe"}}})"), "\"bytes\"");
  EXPECT_EQ(found(R"({"tokenizer": false, "dataset": {"type": "packed", "params": {"source": {"params": {"tokenizer":
    {"type": "bpe"}}}}}})"),
            R"({"type":"bpe"})");
  EXPECT_EQ(found(R"({"dataset": {"type": "synthetic"}})"), "none");
}

}  // namespace
}  // namespace drivetrain::test
