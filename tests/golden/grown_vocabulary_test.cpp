// Folders whose vocabulary grows (model.params.resize_embeddings): the same rows and the same loss under every way of
// cutting a run up, and a run that stops in between. Ranks are threads of this process.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <drivetrain/error.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/value.h>

#include "golden/golden_config.h"
#include "support/run_program.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kRows = 71;  // of 67, so that tensor parallelism pads

struct Grown {
  const char *family, *rows;
  bool tied;
};

class GrownVocabulary : public testing::TestWithParam<Grown> {
 protected:
  static Value config(const std::string& output, double lr, const char* sections = "{}") {
    Value config = read_json_file(golden_folder("families/train.json"));
    config.set("train_steps", 1);
    config.set("seed", 7);
    config.set("model", parse_json(concat("{\"type\": \"gpt\", \"params\": {\"from\": \"", folder(),
                                          "\", \"resize_embeddings\": {\"vocab_size\": ", kRows,
                                          ", \"initial_rows\": \"", GetParam().rows, "\"}}}"),
                                   "test"));
    config.set("dataset", parse_json("{\"type\": \"token_batches\", \"params\": {\"file\": \"" +
                                         golden_folder("families/batches.safetensors") + "\"}}",
                                     "test"));
    config.set("attention", "standard");
    config.set("optimizer", parse_json(concat("{\"type\": \"AdamW\", \"params\": {\"lr\": ", lr, "}}"), "test"));
    config.set("output_dir", output);
    const Value more = parse_json(sections, "sections");
    for (const Value::Member& section : more.members()) config.set(section.key, section.value);
    return config;
  }
  static std::string folder() { return golden_folder(std::string("families/") + GetParam().family); }
  static double first_loss(const std::string& run) { return read_metrics(run).at(0).find("loss")->as_double(); }
  static SafetensorsFile weights(const std::string& folder) {
    return SafetensorsFile::open(folder + "/model.safetensors");
  }
  static bool is_vocabulary(const std::string& name) {
    return name.find("embed_tokens") != std::string::npos || name.find("lm_head") != std::string::npos;
  }
};

TEST_P(GrownVocabulary, its_first_rows_are_the_folders_and_the_others_what_was_asked_for) {
  const TempFolder temporary;
  run_threads(config(temporary / "run", 0), 1);
  const SafetensorsFile came = weights(folder()), went = weights(temporary / "run/final");
  int64_t grown = 0;
  for (const std::string& name : came.names()) {
    const at::Tensor before = came.tensor(name), after = went.tensor(name);
    if (!is_vocabulary(name)) {
      EXPECT_TRUE(at::equal(after, before)) << name;
      continue;
    }
    ++grown;
    const int64_t there = before.size(0);
    ASSERT_EQ(after.size(0), kRows) << name;
    EXPECT_TRUE(at::equal(after.narrow(0, 0, there), before)) << name;
    const at::Tensor added = after.narrow(0, there, kRows - there);
    const at::Tensor mean = before.to(at::kDouble).mean(0).to(at::kFloat);
    if (GetParam().rows == std::string("mean"))
      EXPECT_TRUE(at::equal(added, mean.expand_as(added))) << name;
    else
      EXPECT_FALSE(at::equal(added[0], added[1])) << name;
  }
  EXPECT_EQ(grown, GetParam().tied ? 1 : 2);
  EXPECT_EQ(read_json_file(temporary / "run/final/config.json").find("vocab_size")->as_int(), kRows);
}

TEST_P(GrownVocabulary, is_the_same_under_every_sharding) {
  const TempFolder temporary;
  run_threads(config(temporary / "one", 0), 1);
  const SafetensorsFile one = weights(temporary / "one/final");
  const std::pair<const char*, int> cuts[] = {
      {R"({"data_parallel": "ddp"})", 2},
      {R"({"zero_optimization": {"stage": 1}})", 2},
      {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})", 2},
      {R"({"zero_optimization": {"stage": 3}})", 2},
      {R"({"data_parallel": "fsdp"})", 2},
      {R"({"tensor_parallel": {"size": 2, "make_vocab_size_divisible_by": 1, "sequence_parallel": true}})", 2},
      {R"({"tensor_parallel": {"size": 2}, "zero_optimization": {"stage": 3}})", 4},
      {R"({"pipeline": {"type": "one_f_one_b", "params": {"stages": 2}}})", 2}};
  int number = 0;
  for (const auto& [sections, ranks] : cuts) {
    SCOPED_TRACE(sections);
    const std::string run = temporary / concat("run", ++number);
    run_threads(config(run, 0, sections), ranks);
    EXPECT_NEAR(first_loss(run), first_loss(temporary / "one"), 1e-5);
    const SafetensorsFile cut = weights(run + "/final");
    for (const std::string& name : one.names()) EXPECT_TRUE(at::equal(cut.tensor(name), one.tensor(name))) << name;
  }
}

// A later run reads what this one wrote, with the option or without.
TEST_P(GrownVocabulary, is_a_folder_like_any_other_when_it_is_written) {
  const TempFolder temporary;
  run_threads(config(temporary / "run", 1e-3), 1);
  Value again = config(temporary / "again", 0);
  again.set(
      "model",
      parse_json(concat("{\"type\": \"gpt\", \"params\": {\"from\": \"", temporary / "run/final", "\"}}"), "test"));
  run_threads(again, 1);
  const SafetensorsFile came = weights(temporary / "run/final"), went = weights(temporary / "again/final");
  for (const std::string& name : came.names()) EXPECT_TRUE(at::equal(went.tensor(name), came.tensor(name))) << name;
}

// The same run again, whose end is taken away in between.
TEST_P(GrownVocabulary, a_run_that_stops_goes_on_as_if_it_had_not) {
  const TempFolder temporary;
  Value saving =
      config(temporary / "run", 1e-3, R"({"checkpoint_policy": {"type": "every", "params": {"steps": 2, "keep": 0}}})");
  saving.set("train_steps", 4);
  run_threads(saving, 1);
  std::filesystem::rename(temporary / "run/final", temporary / "straight");
  std::filesystem::remove_all(temporary / "run/checkpoints/step-00000004");
  run_threads(saving, 1);
  EXPECT_EQ(read_metrics(temporary / "run").size(), 4u);
  const SafetensorsFile straight = weights(temporary / "straight"), resumed = weights(temporary / "run/final");
  for (const std::string& name : straight.names())
    EXPECT_TRUE(at::equal(resumed.tensor(name), straight.tensor(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(All, GrownVocabulary,
                         testing::Values(Grown{"llama", "mean", true}, Grown{"qwen3", "mean", false},
                                         Grown{"llama", "init", true}, Grown{"qwen3", "init", false}),
                         [](const auto& info) { return concat(info.param.family, "_", info.param.rows); });

}  // namespace
}  // namespace drivetrain::test
