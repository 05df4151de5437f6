// Runs on documents that dataset/packed arranges: ranks, micro-batches and a restart in the middle of an epoch change
// nothing of what a step sees.
#include <gtest/gtest.h>

#include <fstream>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/memory_checkpoint.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kRunSteps = 6, kBatch = 4;

class PackedRun : public testing::Test {
 protected:
  // Files of 3 to 62 bytes: two epochs and more in kRunSteps steps.
  PackedRun() {
    for (int i = 0; i < 40; ++i)
      std::ofstream(texts_.path(concat("d", i, ".txt")))
          << std::string(static_cast<size_t>(3 + i * 7 % 60), 'a' + i % 26);
  }
  Value config(const std::string& name, const std::string& method, const std::string& sections) {
    Value value =
        parse_json(concat(R"({"seed": 7, "monitors": "jsonl", "save_final": false, "train_steps": )", kRunSteps, R"(,
      "train_batch_size": )",
                          kBatch, R"(, "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 32,
        "num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 64, "position_embedding_type": "rope"}},
      "dataset": {"type": "packed", "params": {"seq_length": 64, "method": ")",
                          method, R"(",
        "source": {"type": "text", "params": {"files": [")",
                          texts_.path(), R"("]}}}},
      "communicator": {"type": "local", "params": {"share": false}},
      "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}, )",
                          sections, "}"),
                   "test");
    value.set("output_dir", folder_.path(name));
    return value;
  }
  const TempFolder texts_, folder_;
};

TEST_F(PackedRun, ranks_and_micro_batches_see_the_same_rows) {
  for (const char* method : {"best_fit", "fixed", "none"}) {
    const RunResult wanted = run_threads(config(concat(method, "1"), method, R"("gradient_accumulation_steps": 1)"), 1);
    ASSERT_EQ(wanted.metrics.size(), static_cast<size_t>(kRunSteps));
    for (const auto& [sections, ranks] :
         {std::pair(R"("gradient_accumulation_steps": 4)", 1),
          std::pair(R"("gradient_accumulation_steps": 1, "zero_optimization": {"stage": 3})", 4)}) {
      SCOPED_TRACE(concat(method, ", ", sections));
      const RunResult found = run_threads(config(concat(method, ranks, "other"), method, sections), ranks);
      for (size_t i = 0; i < wanted.metrics.size(); ++i) {
        const auto figure = [i](const RunResult& run, const char* key) {
          return run.metrics.at(i).find(key)->as_double();
        };
        EXPECT_EQ(figure(found, "tokens"), figure(wanted, "tokens")) << "step " << i + 1;
        if (method != std::string("none")) {
          EXPECT_EQ(figure(found, "documents"), figure(wanted, "documents")) << "step " << i + 1;
          EXPECT_EQ(figure(found, "padding"), figure(wanted, "padding")) << "step " << i + 1;
        }
        EXPECT_NEAR(figure(found, "loss"), figure(wanted, "loss"), 1e-5) << "step " << i + 1;
      }
    }
  }
}

TEST_F(PackedRun, a_run_goes_on_in_the_middle_of_an_epoch_on_other_ranks) {
  const Value one = config("one", "best_fit", R"("gradient_accumulation_steps": 2)");
  const RunPart whole = run_part(one, 1, nullptr, kRunSteps), begun = run_part(one, 1, nullptr, 4);
  const RunPart rest =
      run_part(config("two", "best_fit", R"("gradient_accumulation_steps": 1)"), 2, &begun.end, kRunSteps);
  ASSERT_EQ(rest.figures.begin()->first, 5);
  for (const auto& [step, figures] : rest.figures) {
    EXPECT_NEAR(figures.first, whole.figures.at(step).first, 1e-5) << "loss of step " << step;
    EXPECT_NEAR(figures.second, whole.figures.at(step).second, 1e-4) << "norm of step " << step;
  }
}

}  // namespace
}  // namespace drivetrain::test
