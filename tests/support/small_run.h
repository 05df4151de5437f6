// A small model trained by ranks that are threads, and its figures, for plugins that must not change a bit of them.
#pragma once

#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"
#include "support/train_threads.h"

namespace drivetrain::test {

// Blocks with matrices of different sizes, a vocabulary that no number of ranks divides, values that are really
// gathered.
inline RunResult train_small(const TempFolder& folder, const std::string& name, const std::string& section, int ranks,
                             int accumulation = 1) {
  Value value = parse_json(R"({
    "train_steps": 4, "seed": 7, "train_micro_batch_size_per_gpu": 1, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "vocab_size": 101,
              "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 16}}, "gradient_clipping": 0.5,
    "communicator": {"type": "local", "params": {"share": false}},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}}})",
                           "test");
  const Value further = parse_json(section, "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  value.set("gradient_accumulation_steps", accumulation);
  value.set("output_dir", folder.path(name));
  return run_threads(value, ranks);
}

// Losses and norms of all steps.
inline std::string figures(const RunResult& run) {
  EXPECT_EQ(run.metrics.size(), 4u);
  std::string text;
  for (const Value& step : run.metrics)
    text += concat(step.find("loss")->to_json(), " ", step.find("grad_norm")->to_json(), "\n");
  return text;
}

}  // namespace drivetrain::test
