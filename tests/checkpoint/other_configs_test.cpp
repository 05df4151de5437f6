// State that was saved by a run with another precision or another optimizer section: what fits goes on, what does not
// is named.
#include <gtest/gtest.h>

#include <cmath>

#include "support/memory_checkpoint.h"
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kSaved = 3, kEnd = 5;

Value config_with(const std::string& more, const std::string& optimizer = R"({"lr": 0.01, "weight_decay": 0.1})") {
  Value config = parse_json(R"({
    "seed": 7, "train_micro_batch_size_per_gpu": 2, "train_steps": 5, "monitors": false, "save_final": false,
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 33,
              "max_position_embeddings": 8}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
    "communicator": {"type": "local", "params": {"share": false}}})",
                            "test");
  const Value further = parse_json(more, "test");
  for (const Value::Member& m : further.members()) config.set(m.key, m.value);
  if (!config.find("optimizer"))
    config.set("optimizer", Value::Object{{"type", "AdamW"}, {"params", parse_json(optimizer, "test")}});
  return config;
}

void expect_equal_tensors(const MemoryCheckpoint& found, const MemoryCheckpoint& wanted) {
  EXPECT_EQ(found.tensors_.size(), wanted.tensors_.size());
  for (const auto& [name, t] : wanted.tensors_) {
    const auto other = found.tensors_.find(name);
    ASSERT_NE(other, found.tensors_.end()) << name;
    EXPECT_EQ(other->second.scalar_type(), t.scalar_type()) << name;
    EXPECT_TRUE(at::equal(other->second, t)) << name;
  }
}

void expect_goes_on(const RunPart& rest) {
  EXPECT_EQ(rest.figures.size(), static_cast<size_t>(kEnd - kSaved));
  for (const auto& [step, figures] : rest.figures) EXPECT_TRUE(std::isfinite(figures.first)) << "step " << step;
}

// Masters and moments are float32 in both, so nothing is rounded on the way.
TEST(OtherConfigs, float32_and_bfloat16_take_each_others_state) {
  const std::string plain = "{}", bf16 = R"({"bf16": {"enabled": true}})";
  const std::string bf16_zero3 = R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})";
  struct Pair {
    std::string from;
    int from_ranks;
    std::string to;
    int to_ranks;
  };
  for (const Pair& pair :
       {Pair{plain, 1, bf16, 1}, {bf16, 1, plain, 1}, {plain, 2, bf16_zero3, 2}, {bf16_zero3, 2, plain, 1}}) {
    SCOPED_TRACE(pair.from + " to " + pair.to);
    const RunPart saved = run_part(config_with(pair.from), pair.from_ranks, nullptr, kSaved);
    Value to = config_with(pair.to);
    if (pair.to_ranks == 1 && pair.from_ranks == 2) to.set("gradient_accumulation_steps", 2);
    expect_equal_tensors(run_part(to, pair.to_ranks, &saved.end, 0).end, saved.end);
    const RunPart rest = run_part(to, pair.to_ranks, &saved.end, kEnd);
    expect_goes_on(rest);
    // Near the loss of the run that was left, whose parameters are the same up to their rounding.
    EXPECT_NEAR(rest.figures.at(kSaved + 1).first, saved.figures.at(kSaved).first, 0.2);
  }
}

// Rates and decays are the config's, moments are the checkpoint's.
TEST(OtherConfigs, other_numbers_of_an_optimizer_take_its_moments) {
  const RunPart saved = run_part(config_with("{}"), 1, nullptr, kSaved);
  const RunPart same = run_part(config_with("{}"), 1, &saved.end, kEnd);
  for (const char* options : {R"({"lr": 0.002, "weight_decay": 0.1})", R"({"lr": 0.01, "weight_decay": 0})",
                              R"({"lr": 0.01, "weight_decay": 0.1, "betas": [0.8, 0.99]})",
                              R"({"lr": 0.01, "weight_decay": 0.1, "eps": 1e-4})"}) {
    SCOPED_TRACE(options);
    const Value config = config_with("{}", options);
    expect_equal_tensors(run_part(config, 1, &saved.end, 0).end, saved.end);
    const RunPart rest = run_part(config, 1, &saved.end, kEnd);
    expect_goes_on(rest);
    EXPECT_EQ(rest.figures.at(kSaved + 1), same.figures.at(kSaved + 1)) << "the first loss is of the checkpoint";
    EXPECT_NE(rest.figures.at(kEnd).first, same.figures.at(kEnd).first) << "the option acts";
  }
}

// One without moments takes the values, and leaves what it does not know.
TEST(OtherConfigs, an_optimizer_that_needs_other_state_names_what_is_missing) {
  const std::string plain_sgd = R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1}}})";
  const std::string momentum = R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}})";
  const RunPart adamw = run_part(config_with("{}"), 1, nullptr, kSaved);
  expect_goes_on(run_part(config_with(plain_sgd), 1, &adamw.end, kEnd));
  const std::string missing = failures_of([&] { run_part(config_with(momentum), 1, &adamw.end, 0); });
  for (const char* part : {"does not hold", "optimizer/sgd/", "resolved.json"})
    EXPECT_NE(missing.find(part), std::string::npos) << part << " in " << missing;
  const RunPart sgd = run_part(config_with(plain_sgd), 1, nullptr, kSaved);
  const std::string moments = failures_of([&] { run_part(config_with("{}"), 1, &sgd.end, 0); });
  EXPECT_NE(moments.find("optimizer/adamw/"), std::string::npos) << moments;
}

TEST(OtherConfigs, another_model_is_told_by_its_shapes) {
  const RunPart saved = run_part(config_with("{}"), 1, nullptr, kSaved);
  const std::string model = R"({"model": {"type": "gpt", "params": {"num_layers": %, "hidden_size": 16,
    "num_attention_heads": 2, "vocab_size": 33, "max_position_embeddings": 8, "ffn_hidden_size": #}}})";
  const auto refusal = [&](const char* layers, const char* inner) {
    std::string text = model;
    text.replace(text.find('%'), 1, layers), text.replace(text.find('#'), 1, inner);
    return failures_of([&] { run_part(config_with(text), 1, &saved.end, 0); });
  };
  const std::string deeper = refusal("3", "64"), wider = refusal("2", "48");
  EXPECT_NE(deeper.find("model/block.2."), std::string::npos) << deeper;
  EXPECT_NE(wider.find("mlp.fc.weight [48, 16]: the checkpoint has [64, 16]"), std::string::npos) << wider;
}

}  // namespace
}  // namespace drivetrain::test
