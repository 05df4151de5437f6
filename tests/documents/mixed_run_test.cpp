// Runs on several instruction files with weights: an epoch has the files in these shares, and neither ranks,
// micro-batches nor a restart in the middle of an epoch change which rows a step sees.
#include <gtest/gtest.h>

#include <fstream>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/memory_checkpoint.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

// Eight conversations of short texts and 24 of long ones; an epoch has 32 rows, by the weights 24 short ones.
constexpr int64_t kShortTexts = 8, kLongTexts = 24, kMixedBatch = 4, kMixedSteps = 16,
                  kRowsOfEpoch = kShortTexts + kLongTexts;
constexpr int64_t kShortRow = 5, kLongRow = 19;  // positions that have labels behind them

class MixedRun : public testing::Test {
 protected:
  MixedRun() {
    write("short.jsonl", kShortTexts, 4, 'a');
    write("long.jsonl", kLongTexts, 18, 'A');
  }
  // Conversations of one length, each with a letter of its own.
  void write(const std::string& name, int64_t count, size_t length, char first) {
    std::ofstream file(texts_.path(name));
    for (int64_t i = 0; i < count; ++i)
      file << R"({"prompt": "q", "response": ")" << std::string(length - 2, static_cast<char>(first + i)) << "\"}\n";
  }
  Value config(const std::string& name, const std::string& sections, bool packed = false) {
    const std::string source = concat(R"({"type": "instruction", "params": {"files": [")", texts_.path("short.jsonl"),
                                      R"(", ")", texts_.path("long.jsonl"),
                                      R"("], "weights": [3, 1], "tokenizer": "bytes", "seq_length": 32, "template":
        {"eos": "..", "roles": {"user": {"prefix": "U"}, "assistant": {}}}}})");
    Value value = parse_json(
        concat(R"({"seed": 7, "monitors": "jsonl", "save_final": false, "train_steps": )", kMixedSteps,
               R"(, "train_batch_size": )", kMixedBatch, R"(, "model": {"type": "gpt", "params":
        {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 256,
        "max_position_embeddings": 32, "position_embedding_type": "rope"}}, "communicator": {"type": "local",
        "params": {"share": false}}, "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}, "dataset": )",
               packed ? concat(R"({"type": "packed", "params": {"seq_length": 32, "source": )", source, "}}") : source,
               ", ", sections, "}"),
        "test");
    value.set("output_dir", folder_.path(name));
    return value;
  }
  static double figure(const RunResult& run, size_t step, const char* key) {
    return run.metrics.at(step).find(key)->as_double();
  }
  const TempFolder texts_, folder_;
};

constexpr const char* kOneMicroBatch = R"("gradient_accumulation_steps": 1)";

TEST_F(MixedRun, epochs_have_the_files_in_the_shares_of_their_weights) {
  const RunResult run = run_threads(config("one", kOneMicroBatch), 1);
  ASSERT_EQ(run.metrics.size(), static_cast<size_t>(kMixedSteps));
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    double positions = 0;  // without those behind the conversations
    for (size_t i = 0; i < kRowsOfEpoch / kMixedBatch; ++i)
      positions += kMixedBatch * 32 - figure(run, epoch * kRowsOfEpoch / kMixedBatch + i, "padding");
    EXPECT_EQ(positions, 24 * kShortRow + 8 * kLongRow) << "epoch " << epoch + 1;
  }
}

TEST_F(MixedRun, ranks_and_micro_batches_see_the_same_rows) {
  for (const bool packed : {false, true}) {
    const RunResult wanted = run_threads(config(concat("one", packed), kOneMicroBatch, packed), 1);
    for (const auto& [sections, ranks] :
         {std::pair(R"("gradient_accumulation_steps": 4)", 1),
          std::pair(R"("gradient_accumulation_steps": 2, "data_parallel": "ddp")", 2),
          std::pair(R"("gradient_accumulation_steps": 1, "zero_optimization": {"stage": 3})", 4)}) {
      SCOPED_TRACE(concat(packed ? "packed, " : "", sections));
      const RunResult found = run_threads(config(concat("other", ranks, packed), sections, packed), ranks);
      ASSERT_EQ(found.metrics.size(), wanted.metrics.size());
      for (size_t i = 0; i < wanted.metrics.size(); ++i) {
        for (const char* const key : {"tokens", "padding", "documents"})
          EXPECT_EQ(figure(found, i, key), figure(wanted, i, key)) << key << " of step " << i + 1;
        EXPECT_NEAR(figure(found, i, "loss"), figure(wanted, i, "loss"), 1e-5) << "step " << i + 1;
      }
    }
  }
}

TEST_F(MixedRun, a_run_goes_on_in_the_middle_of_an_epoch_on_other_ranks) {
  const Value one = config("one", kOneMicroBatch);
  const RunPart whole = run_part(one, 1, nullptr, kMixedSteps), begun = run_part(one, 1, nullptr, 11);
  const RunPart rest = run_part(config("two", R"("gradient_accumulation_steps": 1, "data_parallel": "ddp")"), 2,
                                &begun.end, kMixedSteps);
  ASSERT_EQ(rest.figures.begin()->first, 12);
  ASSERT_EQ(rest.figures.size(), static_cast<size_t>(kMixedSteps - 11));
  for (const auto& [step, figures] : rest.figures) {
    EXPECT_NEAR(figures.first, whole.figures.at(step).first, 1e-5) << "loss of step " << step;
    EXPECT_NEAR(figures.second, whole.figures.at(step).second, 1e-4) << "norm of step " << step;
  }
}

}  // namespace
}  // namespace drivetrain::test
