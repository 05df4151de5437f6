#include <drivetrain/testkit/recompute/suite.h>

#include <gtest/gtest.h>

#include <bit>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/random.h>

#include <drivetrain/testkit/kit/decorators.h>
#include <drivetrain/testkit/kit/stop.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {

// Dropout everywhere: a replay that draws other numbers cannot hide.
const std::vector<RecomputeCase>& recompute_cases() {
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

Value recompute_config(const RecomputeCase& c) {
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

static std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string recompute_bits(const RecomputeCase& c, const Value* policy, const TrainFunction& train) {
  const TempFolder folder;
  Value config = recompute_config(c);
  if (policy) config.set("activation_checkpointing", *policy);
  config.set("output_dir", folder.path("run"));
  const TrainedRun run = train(config, c.ranks);
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
  return bits + "weights " + hexadecimal(hash_name(bytes_of(run.weights_file()))) + "\n";
}

std::string recompute_difference(const RecomputeCase& c, const Value& policy, const std::string& plain,
                                 const TrainFunction& train) {
  const std::string found = recompute_bits(c, &policy, train);
  return found == plain ? "" : concat(c.name, ": wanted\n", plain, "found\n", found);
}

// What a case gives without a policy is computed once per process.
static void check_recompute_case(const RecomputeCase& c, const Value& policy, const TrainFunction& train) {
  static std::map<std::string, std::string> plain;  // by case
  SCOPED_TRACE(concat(policy.to_json(), ", ", c.name));
  ASSERT_NO_THROW({
    if (!plain.contains(c.name)) plain[c.name] = recompute_bits(c, nullptr, train);
    EXPECT_EQ(recompute_difference(c, policy, plain[c.name], train), "");
  });
}

static std::string as_identifier(std::string words) {
  for (char& c : words)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return words;
}

Suite recompute_suite() {
  Suite suite;
  for (const RecomputeCase& c : recompute_cases())
    suite.push_back({as_identifier(c.name), [&c](const Subject& subject) {
                       const Value policy = Value::Object{{"type", subject.name}, {"params", subject.options}};
                       check_recompute_case(c, policy, subject.train);
                     }});
  suite.push_back(state_survives_a_stop());
  suite.push_back(decorators_compose());
  return suite;
}

void run_recompute_suite(const Value& policy, const TrainFunction& train) {
  for (const RecomputeCase& c : recompute_cases()) check_recompute_case(c, policy, train);
  expect_same_bits_after_a_stop(Value::Object{{"activation_checkpointing", policy}}, 1, train);
  expect_decorators_compose({.sections = Value::Object{{"activation_checkpointing", policy}}}, train);
}

}  // namespace drivetrain::test
