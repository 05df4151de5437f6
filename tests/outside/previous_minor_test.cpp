// Source compatibility within a major version: plugins that were written against version 0.1 compile against what is
// installed (outside.build_previous_minor) and train.
#include <gtest/gtest.h>

#include "support/run_program.h"

namespace drivetrain::test {
namespace {

constexpr const char* kConfig = R"({
  "train_steps": 4, "train_batch_size": 4, "save_final": false, "threads": 1, "seed": 3,
  "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 64,
            "max_position_embeddings": 16}},
  "dataset": {"type": "minor", "params": {"seq_length": 16}},
  "optimizer": {"type": "minor", "params": {"lr": 0.5}},
  "scheduler": "minor", "attention": "ATTENTION", "monitors": ["minor", "jsonl"], "checkpoint_policy": "minor",
  "strategy": [{"type": "minor"}], "tokenizer": "minor"
})";

std::string with_attention(const char* name) {
  std::string text = kConfig;
  return text.replace(text.find("ATTENTION"), 9, name);
}

TEST(PreviousMinor, its_plugins_train) {
  const TempFolder temporary;
  const std::string build = DRIVETRAIN_BUILD_DIR;
  std::vector<double> losses[2];
  for (const char* attention : {"minor", "standard"}) {
    const std::string config = temporary / "config.json", run = temporary / attention;
    std::ofstream(config) << with_attention(attention);
    const Ran ran = run_shell(build + "/stage/bin/drivetrain launch -n 2 " + config + " --plugin-path " + build +
                              "/outside/previous_minor/lib/drivetrain/plugins --set output_dir=" + run);
    ASSERT_EQ(ran.code, 0) << ran.output;
    EXPECT_NE(ran.output.find("monitor/minor saw 4 steps"), std::string::npos) << ran.output;
    EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/step-00000004")) << "the policy was asked";
    for (const Value& line : read_metrics(run)) {
      EXPECT_EQ(line.find("lr")->as_double(), 0.25);
      EXPECT_GT(line.find("visits")->as_double(), 2);
      losses[attention == std::string("standard")].push_back(line.find("loss")->as_double());
    }
  }
  ASSERT_EQ(losses[0].size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 1e-5) << "attention by the same formula";
  EXPECT_LT(losses[0][3], losses[0][0]) << "it learns";
}

}  // namespace
}  // namespace drivetrain::test
