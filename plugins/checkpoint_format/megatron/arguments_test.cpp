// The table of Megatron-LM's options is what the reader does: every option is changed once, names of one option are
// made to differ, and README.md shows the table.
#include <gtest/gtest.h>

#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "arguments.h"
#include "support/key_table_rows.h"

namespace drivetrain::test {
namespace {

using Members = std::vector<std::pair<TorchValue, TorchValue>>;

// A file with nothing but these options, as JSON.
struct MegatronArguments : ::testing::Test {
  static TorchValue torch_value(const Value& value) {
    if (value.is_null()) return {};
    if (value.is_bool()) return value.as_bool();
    if (value.is_int()) return value.as_int();
    if (value.is_number()) return value.as_double();
    if (value.is_string()) return value.as_string();
    TorchValue::List items;
    for (const Value& item : value.items()) items.push_back(torch_value(item));
    return TorchValue::tuple(std::move(items));
  }
  megatron::SaidOfModel said(const Value& args) const {
    Members members;
    for (const Value::Member& one : args.members()) members.emplace_back(one.key, torch_value(one.value));
    const std::string path = temporary_.path() + "/common.pt";
    write_torch_file(path, TorchValue::dict({{"args", TorchValue::dict(std::move(members))}}));
    return megatron::said_of_model(*TorchFile::open(path));
  }
  std::string refusal(const Value& args) const {
    try {
      said(args);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::checkpoint) << e.what();
      return e.what();
    }
    return "";
  }
  static Value llama() {
    return parse_json(R"({"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 128, "num_attention_heads": 4,
      "group_query_attention": true, "num_query_groups": 2, "kv_channels": 16, "normalization": "RMSNorm",
      "norm_epsilon": 1e-5, "position_embedding_type": "rope", "rotary_base": 500000, "use_rope_scaling": true,
      "rope_scaling_factor": 32.0, "rotary_percent": 1.0, "swiglu": true, "add_bias_linear": false,
      "add_qkv_bias": false, "untie_embeddings_and_output_weights": true, "num_experts": null, "window_size": null})",
                      "test");
  }
  // What the file has to say besides for an option to count.
  static Value where_it_counts(const std::string& name) {
    Value args = llama();
    if (name.find("gelu") != std::string::npos || name == "onnx_safe" || name == "squared_relu" ||
        name == "quick_geglu")
      args.set("swiglu", false), args.set("bias_gelu_fusion", name == "onnx_safe");
    if (name.starts_with("moe_")) args.set("num_experts", 8);
    if (name == "add_position_embedding" || name == "use_rotary_position_embeddings")
      args.set("position_embedding_type", "learned_absolute");
    return args;
  }

  const TempFolder temporary_;
};

TEST_F(MegatronArguments, every_option_of_the_table_changes_the_facts_or_is_refused_or_has_no_effect) {
  const std::map<std::string, Value> others = {{"normalization", "LayerNorm"},
                                               {"position_embedding_type", "learned_absolute"},
                                               {"add_position_embedding", false},
                                               {"use_rope_scaling", false},
                                               {"swiglu", false},
                                               {"group_query_attention", false},
                                               {"disable_bias_linear", false},
                                               {"untie_embeddings_and_output_weights", false},
                                               {"softmax_scale", 0.5},
                                               {"window_size", Value::Array{128, 0}},
                                               {"softmax_type", "learnable"},
                                               {"rotary_percent", 0.5},
                                               {"no_rope_freq", 4},
                                               {"num_experts", 8},
                                               {"num_moe_experts", 8},
                                               {"moe_router_topk", 4},
                                               {"moe_ffn_hidden_size", 96},
                                               {"moe_shared_expert_intermediate_size", 64},
                                               {"moe_layer_freq", 2},
                                               {"moe_router_score_function", "sigmoid"},
                                               {"moe_router_topk_scaling_factor", 2.5},
                                               {"moe_router_num_groups", 2},
                                               {"moe_router_group_topk", 3},
                                               {"rope_type", "yarn"},
                                               {"num_query_groups", 4},
                                               {"num_key_value_heads", 4},
                                               {"rotary_base", 10000},
                                               {"rope_scaling_factor", 8.0},
                                               {"num_layers", 3}};
  for (const KeyRow& row : megatron::arguments()) {
    if (row.use == KeyUse::no_effect) continue;
    for (const std::string& name : spellings(row.names)) {
      SCOPED_TRACE(name);
      const Value before = where_it_counts(name);
      Value after = before;
      for (const std::string& other : spellings(row.names)) after.erase(other);
      after.set(name, others.count(name) ? others.at(name) : row.use == KeyUse::refused ? Value(7) : Value(true));
      if (name == "disable_bias_linear") after.erase("add_bias_linear");
      const std::string refused = refusal(after);
      if (row.use == KeyUse::refused) {
        EXPECT_NE(refused.find(name), std::string::npos) << refused;
        EXPECT_NE(refused.find(row.why), std::string::npos) << refused;
        continue;
      }
      EXPECT_EQ(refused, "");
      EXPECT_FALSE(said(after).facts == said(before).facts) << "nothing changed";
    }
  }
}

TEST_F(MegatronArguments, facts_are_what_the_options_come_to) {
  const Value facts = said(llama()).facts;
  EXPECT_EQ(*facts.find("rope_scaling"),
            parse_json(R"({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192})",
                       "test"));
  EXPECT_EQ(facts.find("activation")->as_string(), "swiglu");
  EXPECT_TRUE(said(llama()).notes.empty());
  Value gpt2 = parse_json(R"({"num_attention_heads": 4, "num_query_groups": 1, "group_query_attention": false,
    "normalization": "layernorm", "layernorm_epsilon": 1e-5, "position_embedding_type": "learned_absolute",
    "rotary_base": 10000, "bias_gelu_fusion": true, "disable_bias_linear": false})",
                          "test");
  const Value old = said(gpt2).facts;
  EXPECT_EQ(old.find("num_query_groups")->as_int(), 4);
  EXPECT_EQ(old.find("normalization")->as_string(), "LayerNorm");
  EXPECT_EQ(old.find("norm_epsilon")->as_double(), 1e-5);
  EXPECT_EQ(old.find("activation")->as_string(), "gelu_tanh");
  EXPECT_TRUE(old.find("add_bias_linear")->as_bool());
  EXPECT_EQ(old.find("rotary_base"), nullptr) << "there is no rope";
  gpt2.set("bias_gelu_fusion", false);
  EXPECT_EQ(said(gpt2).facts.find("activation")->as_string(), "gelu");
}

TEST_F(MegatronArguments, experts_are_said_with_defaults_and_by_layer) {
  Value args = llama();
  EXPECT_EQ(said(args).facts.find("moe_router_topk"), nullptr) << "there are none";
  args.set("num_experts", 8), args.set("num_layers", 3), args.set("moe_layer_freq", 2);
  const Value facts = said(args).facts;
  EXPECT_EQ(facts.find("moe_ffn_hidden_size")->as_int(), 128);
  EXPECT_EQ(facts.find("moe_router_topk")->as_int(), 2);
  EXPECT_EQ(facts.find("moe_layer_freq")->to_json(), "[1,0,1]");
  args.set("moe_router_load_balancing_type", "sinkhorn");
  EXPECT_NE(refusal(args).find("sinkhorn"), std::string::npos);
}

TEST_F(MegatronArguments, two_names_of_one_option_agree_or_are_refused) {
  for (const KeyRow& row : megatron::arguments()) {
    const std::vector<std::string> names = spellings(row.names);
    if (row.use != KeyUse::compared || names.size() < 2) continue;
    Value args = llama();
    args.set(names[0], 6), args.set(names[1], 6.0);
    EXPECT_EQ(refusal(args), "") << names[1];
    args.set(names[1], 7);
    for (const char* word : {names[0].c_str(), names[1].c_str(), "contradict"})
      EXPECT_NE(refusal(args).find(word), std::string::npos) << names[1];
  }
  Value args = llama();
  args.set("disable_bias_linear", false);
  EXPECT_NE(refusal(args).find("add_bias_linear"), std::string::npos);
  args = llama(), args.set("squared_relu", true);
  EXPECT_NE(refusal(args).find("swiglu"), std::string::npos);
}

TEST_F(MegatronArguments, what_nobody_knows_is_named_and_what_trains_is_not) {
  Value args = llama();
  for (const char* training : {"lr",
                               "min_lr",
                               "weight_decay",
                               "train_iters",
                               "micro_batch_size",
                               "save",
                               "load",
                               "tensorboard_dir",
                               "log_interval",
                               "bf16",
                               "tensor_model_parallel_size",
                               "data_path",
                               "tokenizer_model",
                               "padded_vocab_size",
                               "recompute_granularity",
                               "moe_router_topk",
                               "attention_backend",
                               "clip_grad",
                               "rank",
                               "seq_length",
                               "wandb_project"})
    args.set(training, 7);
  EXPECT_TRUE(said(args).notes.empty()) << said(args).notes.front();
  for (const char* of_the_model : {"attn_logit_softcapping", "use_parallel_residual", "lora_rank", "embedding_scale"}) {
    Value other = args;
    other.set(of_the_model, 2.5);
    ASSERT_EQ(said(other).notes.size(), 1u) << of_the_model;
    EXPECT_NE(said(other).notes[0].find(concat(of_the_model, " 2.5")), std::string::npos) << said(other).notes[0];
    other.set(of_the_model, Value());
    EXPECT_TRUE(said(other).notes.empty()) << "it asks for nothing";
  }
  const std::string path = temporary_.path() + "/common.pt";
  write_torch_file(path, TorchValue::dict({{"iteration", 3}}));
  EXPECT_NE(megatron::said_of_model(*TorchFile::open(path)).notes.at(0).find("no \"args\""), std::string::npos);
}

TEST_F(MegatronArguments, the_readme_shows_the_table) {
  std::vector<std::string> rows;
  for (const KeyRow& row : megatron::arguments())
    rows.push_back(row.of == std::string(megatron::kPatterns) ? concat("| by patterns: ", row.why, " | no effect | |\n")
                                                              : readme_row(row));
  EXPECT_EQ(rows_missing_in(DRIVETRAIN_SOURCE_DIR "/plugins/checkpoint_format/megatron/README.md", rows), "");
}

}  // namespace
}  // namespace drivetrain::test
