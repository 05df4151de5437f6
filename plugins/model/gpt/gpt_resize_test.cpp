// The option resize_embeddings: a larger vocabulary than the folder's, in the shape, in the rules and in config.json.
#include <gtest/gtest.h>

#include <drivetrain/model.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "hf_config.h"
#include "test_model.h"

namespace drivetrain::test {
namespace {

// The second has an output layer of its own.
const std::string kTiedFolder = DRIVETRAIN_GOLDEN_DIR "/families/llama",
                  kUntiedFolder = DRIVETRAIN_GOLDEN_DIR "/llama_tiny/model";

std::string options(const std::string& resize, const std::string& folder = kUntiedFolder,
                    const std::string& more = "") {
  return concat("{\"from\": \"", folder, "\", \"resize_embeddings\": ", resize, more, "}");
}

std::map<std::string, AbsentRows> starts_of(const WeightRules& rules) {
  std::map<std::string, AbsentRows> starts;
  for (const WeightRule& rule : rules.rules)
    for (const WeightPart& part : rule.parts)
      if (part.absent != AbsentRows::refused) starts[rule.param] = part.absent;
  return starts;
}

int64_t rows_of(const WeightRules& rules, const std::string& param) {
  for (const WeightRule& rule : rules.rules)
    if (rule.param == param) return rule.parts.front().rows;
  return 0;
}

TEST(GptResize, a_folder_gets_more_rows_of_its_vocabulary) {
  const int64_t before = gpt("{\"from\": \"" + kUntiedFolder + "\"}")->facts().vocab_size, after = before + 4;
  for (const auto& [rows, start] : {std::pair{"mean", AbsentRows::mean}, {"init", AbsentRows::init}}) {
    const auto model = gpt(options(concat("{\"vocab_size\": ", after, ", \"initial_rows\": \"", rows, "\"}")));
    EXPECT_EQ(model->facts().vocab_size, after);
    const WeightRules rules = model->weight_rules("hf");
    EXPECT_EQ(starts_of(rules),
              (std::map<std::string, AbsentRows>{{"embedding.word.weight", start}, {"head.weight", start}}));
    EXPECT_EQ(rows_of(rules, "embedding.word.weight"), after);
    EXPECT_EQ(rows_of(rules, "head.weight"), after);
    EXPECT_EQ(rules.config.find("vocab_size")->as_int(), after);
  }
}

TEST(GptResize, the_mean_is_what_absence_says_and_a_tied_model_has_one_table) {
  const auto model = gpt(options(R"({"vocab_size": 300})", kTiedFolder));
  EXPECT_EQ(model->facts().vocab_size, 300);
  EXPECT_EQ(starts_of(model->weight_rules("hf")),
            (std::map<std::string, AbsentRows>{{"embedding.word.weight", AbsentRows::mean}}));
  EXPECT_TRUE(starts_of(gpt("{\"from\": \"" + kUntiedFolder + "\"}")->weight_rules("hf")).empty());
}

// As resolved.json has them.
TEST(GptResize, options_that_were_filled_in_say_the_same_again) {
  const auto& descriptor = *static_cast<const DrivetrainDescriptor*>(drivetrain_plugin);
  const auto& table = *static_cast<const OptionTable*>(descriptor.entries[0].options());
  Problems problems;
  const auto read = [&](const Value& given) {
    return table.to_value(table.parse(given, "model/gpt", "params", problems).get());
  };
  const Value once = read(parse_json(options(R"({"vocab_size": 300})"), "test"));
  problems.throw_if_any();
  EXPECT_EQ(once.find("vocab_size")->as_int(), 300);
  EXPECT_EQ(once.find("resize_embeddings")->to_json(), R"({"vocab_size":300,"initial_rows":"mean"})");
  EXPECT_EQ(read(once).to_json(), once.to_json());
  problems.throw_if_any();
}

TEST(GptResize, what_cannot_be_meant_is_refused_with_the_key) {
  const std::pair<std::string, std::vector<const char*>> cases[] = {
      {options(R"({"vocab_size": 100})"),
       {"resize_embeddings.vocab_size is 100", "llama_tiny/model/config.json is 256", "none is taken away"}},
      {options("300"), {"resize_embeddings is 300", R"({"vocab_size": N, "initial_rows": "mean" or "init"})"}},
      {options(R"({"initial_rows": "mean"})"), {"resize_embeddings has no vocab_size", "a whole number"}},
      {options(R"({"vocab_size": 300.5})"), {"resize_embeddings.vocab_size is 300.5", "a whole number"}},
      {options(R"({"vocab_size": 1e12})"), {"resize_embeddings.vocab_size is", "from 1 to 2147483647"}},
      {options(R"({"vocab_size": 300, "initial_rows": "zeros"})"),
       {"resize_embeddings.initial_rows is \"zeros\"", "\"mean\"", "\"init\""}},
      {options(R"({"vocab_size": 300, "rows": "mean"})"), {"resize_embeddings has \"rows\", which is not known"}},
      {options(R"({"vocab_size": 300})", kUntiedFolder, R"(, "vocab_size": 256)"),
       {"vocab_size is 256 in the options, and resize_embeddings makes it 300"}},
      {R"({"num_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 64,
           "max_position_embeddings": 16, "resize_embeddings": {"vocab_size": 80}})",
       {"resize_embeddings adds rows to those of a Hugging Face folder", "from names none", "vocab_size alone"}}};
  for (const auto& [given, parts] : cases) {
    const std::string text = error_of([&] { gpt(given); });
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
  EXPECT_NO_THROW(gpt(options(R"({"vocab_size": 300})", kUntiedFolder, R"(, "vocab_size": 300)")));
  const TempFolder weights_alone;
  const std::string text = error_of([&] {
    gpt(options(R"({"vocab_size": 80})", weights_alone.path(), R"(, "num_layers": 1, "hidden_size": 8,
        "num_attention_heads": 2, "vocab_size": 64, "max_position_embeddings": 16)"));
  });
  EXPECT_NE(text.find("which has no config.json"), std::string::npos) << text;
}

// Which of the rows hold tokens would be a guess.
TEST(GptResize, a_folder_whose_tensors_have_other_rows_than_it_says_is_refused) {
  const TempFolder copy;
  std::filesystem::copy(kUntiedFolder, copy.path(), std::filesystem::copy_options::recursive);
  Value config = read_json_file(copy / "config.json");
  config.set("vocab_size", 200);
  std::ofstream(copy / "config.json") << config.to_json();
  const std::string text = error_of([&] { gpt(options(R"({"vocab_size": 300})", copy.path())); });
  for (const char* part : {"\"model.embed_tokens.weight\"", "has 256 rows", "vocab_size in", "is 200"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

}  // namespace
}  // namespace drivetrain::test
