// What every recompute policy must do: nothing to the numbers. Small models are trained by the real runtime, ranks as
// threads, with the policy and without; losses, norms, evaluations and final weights must agree to the last bit.
//
// `recompute_difference` tells the first difference, so that a test can also see that the suite finds one.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <map>

#include <drivetrain/random.h>

#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/train_threads.h"

namespace drivetrain::test {

struct RecomputeCase {
  const char* name;
  const char* sections;  // of the config, besides the common ones
  int ranks = 1, accumulation = 1;
  const char* model = "";  // further options of the model
};

// Dropout everywhere: a replay that draws other numbers cannot hide.
inline const std::vector<RecomputeCase>& recompute_cases() {
  static const std::vector<RecomputeCase> list = {
      {"plain blocks, standard attention", R"({"fused_block": false, "attention": "standard"})"},
      {"plain blocks, flash attention, two micro-batches", R"({"fused_block": false, "attention": "flash"})", 1, 2},
      {"fused blocks, standard attention, two micro-batches", R"({"fused_block": {}, "attention": "standard"})", 1, 2},
      {"fused blocks that keep all, flash attention",
       R"({"fused_block": {"recompute_cheap": false}, "attention": "flash"})"},
      {"plain blocks, ZeRO stage 3 over two ranks",
       R"({"fused_block": false, "attention": "standard", "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 4000,
           "stage3_param_persistence_threshold": 100, "stage3_max_live_parameters": 12000}})",
       2, 2},
      {"fused blocks, ZeRO stage 3 over two ranks",
       R"({"fused_block": {}, "attention": "flash", "zero_optimization": {"stage": 3, "stage3_max_reuse_distance": 0,
           "stage3_param_persistence_threshold": 0}})",
       2},
      {"bfloat16, rotary, grouped heads, gated activation",
       R"({"fused_block": false, "attention": "standard", "bf16": {"enabled": true}})", 1, 1,
       R"("num_query_groups": 2, "position_embedding_type": "rope", "normalization": "rmsnorm", "activation": "swiglu",)"},
      {"plain blocks, tensor parallel with its sequences cut, two ranks",
       R"({"fused_block": false, "attention": "standard", "tensor_parallel": {"size": 2, "sequence_parallel": true,
           "make_vocab_size_divisible_by": 34}})",  // 67 rows as 34, and 33 with one of padding
       2},
      {"fused blocks, two pipeline stages that put off weights' gradients, four micro-batches",
       R"({"fused_block": {}, "attention": "standard", "pipeline": {"type": "zero_bubble_h1", "params": {"stages": 2}}})",
       2, 4},
      {"plain blocks, two pipeline stages that put off weights' gradients, four micro-batches",
       R"({"fused_block": false, "attention": "flash", "pipeline": {"type": "zero_bubble_h1", "params": {"stages": 2}}})",
       2, 4},
  };
  return list;
}

inline Value recompute_config(const RecomputeCase& c) {
  const bool flash = std::string(c.sections).find("flash") != std::string::npos;  // which has no dropout of its own
  Value config = parse_json(
      concat(
          R"({"train_steps": 3, "seed": 5, "train_micro_batch_size_per_gpu": 2, "eval_interval": 2,
    "monitors": "jsonl", "gradient_clipping": 0.5, "model": {"type": "gpt", "params": {)",
          c.model,
          R"("num_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 67, "max_position_embeddings": 16,
    "hidden_dropout": 0.2, "attention_dropout": )",
          flash ? "0" : "0.2", R"(}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 16}}, "communicator": {"type": "local", "params": {"share": false}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}})"),
      "suite");
  const Value further = parse_json(c.sections, "case");
  for (const Value::Member& m : further.members()) config.set(m.key, m.value);
  config.set("gradient_accumulation_steps", c.accumulation);
  return config;
}

// Everything of a run that a policy must not change, one line per step, then a digest of the weights.
inline std::string recompute_bits(const RecomputeCase& c, const Value* policy,
                                  const Registry& registry = built_plugins()) {
  const TempFolder folder;
  Value config = recompute_config(c);
  if (policy) config.set("activation_checkpointing", *policy);
  config.set("output_dir", folder.path("run"));
  const RunResult run = run_threads(config, c.ranks, registry);
  const auto hexadecimal = [](uint64_t number) {
    char text[17];
    std::snprintf(text, sizeof text, "%016" PRIx64, number);
    return std::string(text);
  };
  std::string bits;
  for (const Value& line : run.metrics) {
    for (const char* key : {"loss", "grad_norm", "valid_loss"})
      if (const Value* figure = line.find(key))
        bits += concat(key, " ", figure->is_null() ? "null" : hexadecimal(std::bit_cast<uint64_t>(figure->as_double())),
                       " ");
    bits += "\n";
  }
  return bits + "weights " + hexadecimal(hash_name(file_bytes(run.weights_file()))) + "\n";
}

// Empty: none. `plain`: what the case gives without the policy.
inline std::string recompute_difference(const RecomputeCase& c, const Value& policy, const std::string& plain,
                                        const Registry& registry = built_plugins()) {
  const std::string found = recompute_bits(c, &policy, registry);
  return found == plain ? "" : concat(c.name, ": wanted\n", plain, "found\n", found);
}

inline void run_recompute_suite(const Value& policy) {
  static std::map<std::string, std::string> plain;  // by case
  for (const RecomputeCase& c : recompute_cases()) {
    SCOPED_TRACE(concat(policy.to_json(), ", ", c.name));
    ASSERT_NO_THROW({
      if (!plain.contains(c.name)) plain[c.name] = recompute_bits(c, nullptr);
      EXPECT_EQ(recompute_difference(c, policy, plain[c.name]), "");
    });
  }
}

}  // namespace drivetrain::test
