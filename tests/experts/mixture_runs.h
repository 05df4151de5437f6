// Whole runs of a small mixture, and what two of them have to have in common.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>

#include <map>
#include <string>
#include <vector>

#include <drivetrain/safetensors.h>
#include <drivetrain/testkit/kit/temp_folder.h>

#include "support/train_threads.h"

namespace drivetrain::test {

inline const Registry& with_mistakes() {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_EXPERTS_DIR}, ""));
  return registry;
}

// A dense layer, then three mixtures with a shared MLP; a loss for balance in each layer, and the z-loss. Micro-batches
// are of one row everywhere, so that the means of the losses are over the same tokens.
inline Value config_with(const std::string& sections) {
  Value config = parse_json(R"({
    "train_steps": 4, "seed": 11, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "monitors": "jsonl",
    "gradient_clipping": 0.3, "checkpoint_policy": false,
    "model": {"type": "gpt", "params": {"num_layers": 4, "hidden_size": 32, "num_attention_heads": 4,
              "ffn_hidden_size": 40, "normalization": "rmsnorm", "position_embedding_type": "rope",
              "activation": "swiglu", "add_bias": false, "vocab_size": 97, "max_position_embeddings": 16,
              "init_method_std": 0.15, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
              "norm_topk_prob": true, "shared_expert_intermediate_size": 20, "shared_expert_gate": true, "add_qkv_bias": true,
              "first_k_dense_replace": 1,
              "aux_loss": "per_layer", "router_aux_loss_coef": 0.02, "router_z_loss_coef": 0.01}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 16}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "eps": 1e-4, "weight_decay": 0.1}}})",
                            "test");
  const Value more = parse_json("{" + sections + "}", "sections");
  for (const Value::Member& member : more.members()) config.set(member.key, member.value);
  return config;
}

// Members of the model's params; those of `more` count.
inline Value with_model(Value config, const std::string& more) {
  Value model = *config.find("model"), params = *model.find("params");
  const Value members = parse_json(more, "model");
  for (const Value::Member& member : members.members()) params.set(member.key, member.value);
  model.set("params", params), config.set("model", model);
  return config;
}

struct Trained {
  std::vector<double> losses, balance, norms;
  std::map<std::string, at::Tensor> weights;
};

// -1: there is none.
inline double balance_of(const Value& line) {
  const Value* found = line.find("loss_terms.load_balancing_loss");
  return found ? found->as_double() : -1;
}

inline Trained trained_of(const TrainedRun& run) {
  Trained trained;
  for (const Value& line : run.metrics) {
    trained.losses.push_back(line.find("loss")->as_double());
    trained.norms.push_back(line.find("grad_norm")->as_double());
    trained.balance.push_back(balance_of(line));
  }
  const SafetensorsFile file = SafetensorsFile::open(run.weights_file());
  for (const std::string& name : file.names()) trained.weights[name] = file.tensor(name).clone();
  return trained;
}

inline Trained train_config(Value config, int ranks) {
  const TempFolder folder;
  config.set("output_dir", folder.path("run"));
  return trained_of(run_threads(config, ranks, with_mistakes()));
}
inline Trained train(const std::string& sections, int ranks) { return train_config(config_with(sections), ranks); }

inline const Trained& alone() {
  static const Trained trained = train("", 1);
  return trained;
}

inline void expect_same_training(const Trained& found, const Trained& wanted) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], wanted.losses[i], 4e-6 * wanted.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(found.norms[i], wanted.norms[i], 2e-5 * wanted.norms[i]) << "step " << i + 1;
  }
  ASSERT_EQ(found.weights.size(), wanted.weights.size());
  for (const auto& [name, value] : wanted.weights)
    EXPECT_TRUE(at::allclose(found.weights.at(name), value, 0, 4e-5)) << name;
}

inline void expect_same(const Trained& found, const Trained& wanted) {
  expect_same_training(found, wanted);
  ASSERT_EQ(found.balance.size(), wanted.balance.size());
  for (size_t i = 0; i < wanted.balance.size(); ++i) {
    EXPECT_GT(wanted.balance[i], 0.5) << "without a loss for balance";
    EXPECT_NEAR(found.balance[i], wanted.balance[i], 1e-5 * wanted.balance[i]) << "balance, step " << i + 1;
  }
}

inline constexpr const char* kDdp = R"("data_parallel": "ddp")";
inline constexpr const char* kZero1 = R"("zero_optimization": {"stage": 1, "reduce_bucket_size": 3000})";
inline constexpr const char* kZero2 = R"("zero_optimization": {"stage": 2, "reduce_bucket_size": 3000})";
inline constexpr const char* kZero3 = R"("zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,
                                   "stage3_max_live_parameters": 12000, "stage3_prefetch_bucket_size": 4000})";
inline constexpr const char* kFsdp = R"("data_parallel": {"type": "fsdp", "params": {"prefetch": 1}})";

inline std::string split(int64_t ranks, const std::string& more) {
  return concat(R"("expert_parallel": {"enabled": true, "autoep_size": )", ranks, "}, ", more);
}

}  // namespace drivetrain::test
