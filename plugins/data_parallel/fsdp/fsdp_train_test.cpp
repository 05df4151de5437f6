// data_parallel/fsdp in whole runs with ranks as threads: the figures of whole copies, to the last bit.
#include <gtest/gtest.h>

#include "support/plugin_under_test.h"
#include "support/temp_folder.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

RunResult train(const TempFolder& folder, const std::string& name, const std::string& section, int ranks,
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

std::string figures(const RunResult& run) {
  EXPECT_EQ(run.metrics.size(), 4u);
  std::string text;
  for (const Value& step : run.metrics)
    text += concat(step.find("loss")->to_json(), " ", step.find("grad_norm")->to_json(), "\n");
  return text;
}

std::string fsdp(const std::string& params, const std::string& more = "") {
  return concat(R"({"data_parallel": {"type": "fsdp", "params": )", params, "}", more, "}");
}

TEST(FsdpRun, has_the_losses_and_norms_of_whole_copies) {
  const TempFolder folder;
  for (const int ranks : {1, 2, 4}) {
    const std::string whole = figures(train(folder, concat("whole", ranks), "{}", ranks));
    int n = 0;
    for (const char* params : {"{}", R"({"prefetch": 0})", R"({"prefetch": 3, "reshard_after_forward": false})",
                               R"({"param_persistence_threshold": 3000})", R"({"sharding_strategy": "NO_SHARD"})"})
      EXPECT_EQ(figures(train(folder, concat("run", ranks, "_", ++n), fsdp(params), ranks)), whole)
          << params << " on " << ranks;
  }
}

TEST(FsdpRun, hybrid_groups_and_values_that_exist_once_change_no_bit) {
  const TempFolder folder;
  const std::string whole = figures(train(folder, "whole", "{}", 4));
  EXPECT_EQ(figures(train(folder, "groups", fsdp(R"({"shard_group_size": 2})"), 4)), whole);
  EXPECT_EQ(figures(train(folder, "once", fsdp("{}", R"(, "communicator": "local")"), 4)), whole);
  EXPECT_EQ(figures(train(folder, "alone", fsdp(R"({"shard_group_size": 1})"), 4)), whole);
}

TEST(FsdpRun, with_accumulation_one_reduce_every_gives_one_curve) {
  const TempFolder folder;
  for (const int every : {0, 1, 2}) {
    const std::string key = concat(R"("reduce_every": )", every);
    const std::string whole = figures(train(folder, concat("whole", every), "{" + key + "}", 2, 3));
    EXPECT_EQ(figures(train(folder, concat("fsdp", every), fsdp("{}", ", " + key), 2, 3)), whole) << every;
  }
}

TEST(FsdpRun, has_them_in_bfloat16_too_and_takes_the_policy_that_says_so) {
  const TempFolder folder;
  const std::string bf16 = R"("bf16": {"enabled": true})";
  const std::string policy = R"({"mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}})";
  EXPECT_EQ(figures(train(folder, "fsdp", fsdp(policy, ", " + bf16), 2)),
            figures(train(folder, "whole", "{" + bf16 + "}", 2)));
  EXPECT_NE(error_of([&] { train(folder, "other", fsdp(policy), 2); }).find("set \"bf16\": {\"enabled\": true}"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
