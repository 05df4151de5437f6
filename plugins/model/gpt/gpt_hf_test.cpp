// Hugging Face folders: old and new keys, contradictions with options, what is refused, and what is written.
#include <gtest/gtest.h>

#include <fstream>

#include <drivetrain/model.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "hf_config.h"
#include "test_model.h"

namespace drivetrain::test {
namespace {

const std::string kGolden = DRIVETRAIN_GOLDEN_DIR;

std::unique_ptr<Model> gpt_from(const std::string& folder, const std::string& more = "") {
  return gpt("{\"from\": \"" + folder + "\"" + more + "}");
}

Value config_of(const std::string& family) { return read_json_file(kGolden + "/" + family + "/model/config.json"); }

std::string json_of(const Value& config) { return config.to_json(); }

Value qwen2_config() {
  return parse_json(
      R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 300, "hidden_size": 48,
    "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
    "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 32768,
    "use_sliding_window": false, "max_window_layers": 21, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "initializer_range": 0.02, "attention_dropout": 0.0, "use_mrope": false})",
      "qwen");
}

TEST(GptFromFolder, takes_shape_and_weights_from_it) {
  const auto model = gpt_from(kGolden + "/llama_tiny/model");
  const ModelFacts f = model->facts();
  EXPECT_EQ(f.num_layers, 2);
  EXPECT_EQ(f.num_query_groups, 2);
  EXPECT_EQ(f.ffn_hidden_size, 172);
  EXPECT_TRUE(std::filesystem::equivalent(model->weights_folder(), kGolden + "/llama_tiny/model"));
  EXPECT_TRUE(model->byte_vocabulary());
}

TEST(GptFromFolder, old_and_new_keys_mean_the_same_shape) {
  const auto fresh = gpt::parse_config(config_of("llama_tiny"), "new");
  const auto old = gpt::parse_config(read_json_file(kGolden + "/llama_tiny/config_old_keys.json"), "old");
  const auto written = [](const gpt::FolderConfig& f) {
    return json_of(gpt::write_config(*f.family, f.shape, Value()));
  };
  EXPECT_EQ(written(fresh), written(old));
  Value renamed = config_of("gpt2_tiny");
  for (const auto& [from, to] : {std::pair{"n_layer", "num_hidden_layers"},
                                 {"n_embd", "hidden_size"},
                                 {"n_head", "num_attention_heads"},
                                 {"n_positions", "n_ctx"}}) {
    renamed.set(to, *renamed.find(from));
    renamed.erase(from);
  }
  EXPECT_EQ(written(gpt::parse_config(renamed, "renamed")),
            written(gpt::parse_config(config_of("gpt2_tiny"), "golden")));
}

TEST(GptFromFolder, rotary_bases_are_found_under_both_names) {
  Value config = config_of("llama_tiny");
  config.erase("rope_parameters");
  config.set("rope_theta", 500000.0);
  EXPECT_EQ(gpt::parse_config(config, "c").shape.scaling.base, 500000);
  config.set("rope_scaling",
             parse_json(R"({"type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                            "original_max_position_embeddings": 8192})",
                        "t"));
  const auto scaling = gpt::parse_config(config, "c").shape.scaling;
  EXPECT_EQ(scaling.type, "llama3");
  EXPECT_EQ(scaling.base, 500000);
  EXPECT_EQ(scaling.factor, 32);
  EXPECT_EQ(scaling.original_positions, 8192);
}

TEST(GptFromFolder, options_beside_it_must_agree_and_training_options_may_differ) {
  const std::string folder = kGolden + "/llama_tiny/model";
  EXPECT_NO_THROW(gpt_from(folder, R"(, "num_layers": 2, "normalization": "rmsnorm", "add_bias": false)"));
  const ModelFacts f = gpt_from(folder, R"(, "hidden_dropout": 0.1, "attention_dropout": 0.2)")->facts();
  EXPECT_EQ(f.hidden_dropout, 0.1);
  EXPECT_EQ(f.attention_dropout, 0.2);
  const std::string text = error_of([&] {
    gpt_from(folder, R"(, "num_hidden_layers": 12, "normalization": "layernorm", "rope_theta": 5e5, "add_bias": true)");
  });
  for (const char* part : {"num_layers is 12 in the options, 2 in the folder",
                           "normalization is \"layernorm\" in the options, \"rmsnorm\" in the folder",
                           "rotary_base is 5e+05 in the options, 10000.0 in the folder",
                           "add_bias is true in the options, false in the folder", "/llama_tiny/model/config.json"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(GptFromFolder, what_we_cannot_compute_is_refused_with_the_reason) {
  const std::tuple<const char*, const char*, const char*, const char*> cases[] = {
      {"gpt2_tiny", "scale_attn_by_inverse_layer_idx", "true", "attention is scaled alike in every block"},
      {"gpt2_tiny", "scale_attn_weights", "false", "attention is always scaled"},
      {"gpt2_tiny", "add_cross_attention", "true", "no encoder"},
      {"gpt2_tiny", "activation_function", "\"mish\"",
       "\"activation_function\": \"mish\" is not supported: known are gelu_new"},
      {"gpt2_tiny", "n_head", "5", "num_attention_heads 5 does not divide hidden_size 64"},
      {"gpt2_tiny", "n_layer", "0", "num_layers is 0"},
      {"gpt2_tiny", "n_layer", "null", "has no \"n_layer\""},
      {"gpt2_tiny", "model_type", "\"bloom\"", "model_type is \"bloom\"; known are gpt2, llama, qwen2, qwen3, mistral"},
      {"llama_tiny", "hidden_act", "\"mish\"", "known are silu, swish"},
      {"llama_tiny", "rope_parameters", R"({"rope_type": "mrope", "rope_theta": 1e4})",
       "rope_type \"mrope\" is not supported"},
      {"llama_tiny", "rope_parameters", R"("llama3")", "rope_parameters is \"llama3\"; it has to be an object or null"},
      {"llama_tiny", "rope_parameters", R"({"rope_type": "llama3", "factor": 8})",
       "rope_type llama3 needs \"low_freq_factor\""},
      {"llama_tiny", "partial_rotary_factor", "0.5", "rope turns whole heads"},
      {"llama_tiny", "num_key_value_heads", "3", "num_query_groups 3 does not divide num_attention_heads 4"},
      {"llama_tiny", "quantization_config", "{}", "save what dequantize() of transformers gives"},
  };
  for (const auto& [family, key, value, wanted] : cases) {
    Value config = config_of(family);
    config.set(key, parse_json(value, "test"));
    const std::string text = error_of([&] {
      const auto f = gpt::parse_config(config, "F/config.json");
      gpt::shape_from_folder({}, f.shape, f.path);
    });
    EXPECT_NE(text.find(wanted), std::string::npos) << key << ": " << text;
    EXPECT_NE(text.find("F/config.json"), std::string::npos) << key << ": " << text;
  }
}

TEST(GptFromFolder, a_folder_that_is_none_is_refused) {
  const TempFolder empty;
  EXPECT_NE(error_of([] { gpt_from("/no/such/folder"); }).find("/no/such/folder, which is not a folder"),
            std::string::npos);
  EXPECT_NE(error_of([&] { gpt_from(empty.path()); }).find("which has no config.json"), std::string::npos);
}

TEST(GptFromFolder, a_folder_of_something_else_is_named_with_the_way_to_a_model) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"adapter_config.json", {"is the folder of an adapter", "merge_and_unload", "strategy/lora"}},
      {"model-q4.gguf", {"holds model-q4.gguf", "Hugging Face folder that it was made from"}}};
  for (const auto& [file, parts] : cases) {
    const TempFolder folder;
    std::ofstream(folder.path(file)) << "{}";
    const std::string text = error_of([&] { gpt_from(folder.path()); });
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    EXPECT_NE(text.find(folder.path()), std::string::npos);
    std::ofstream(folder.path("model.safetensors")) << "";  // beside weights it says nothing
    EXPECT_NE(error_of([&] { gpt_from(folder.path()); }).find("so it gives weights and no sizes"), std::string::npos);
  }
}

// As transformers 5 holds them in memory.
TEST(GptFromFolder, experts_that_are_stacked_in_one_tensor_are_named) {
  const Value config = read_json_file(kGolden + "/families/qwen3_moe/config.json");
  const auto text = [&](const std::vector<std::string>& tensors) {
    return error_of([&] { gpt::parse_config(config, "F/config.json", nullptr, tensors); });
  };
  const std::string stacked = text({"model.embed_tokens.weight", "model.layers.1.mlp.experts.down_proj"});
  for (const char* part : {"F/config.json", "\"model.layers.1.mlp.experts.down_proj\"", "stacked in one tensor",
                           "model.layers.{}.mlp.experts.{}.gate_proj.weight", "save_pretrained"})
    EXPECT_NE(stacked.find(part), std::string::npos) << part << " in: " << stacked;
  EXPECT_EQ(text({"model.layers.1.mlp.experts.0.down_proj.weight"}), "");
}

TEST(GptExport, a_folder_of_ours_keeps_the_keys_of_its_origin) {
  for (const char* family : {"gpt2_tiny", "llama_tiny"}) {
    Value written = gpt_from(kGolden + "/" + family + "/model")->weight_rules("hf").config;
    for (const char* of_transformers_4 : {"torch_dtype", "rope_theta", "rope_scaling"})
      written.erase(of_transformers_4);
    EXPECT_EQ(json_of(written), json_of(config_of(family))) << family;
  }
}

TEST(GptExport, both_spellings_are_written_and_unknown_keys_stay) {
  const auto f = gpt::parse_config(qwen2_config(), "Q");
  EXPECT_TRUE(f.shape.qkv_bias);
  EXPECT_FALSE(f.shape.proj_bias || f.shape.mlp_bias);
  const Value written = gpt::write_config(*f.family, f.shape, f.config);
  for (const char* key : {"dtype", "torch_dtype"}) EXPECT_EQ(written.find(key)->as_string(), "bfloat16") << key;
  EXPECT_EQ(written.find("rope_theta")->as_double(), 1e6);
  EXPECT_TRUE(written.find("rope_scaling")->is_null());
  EXPECT_EQ(written.find("rope_parameters")->find("rope_theta")->as_double(), 1e6);
  EXPECT_FALSE(written.find("use_mrope")->as_bool());
  EXPECT_EQ(written.find("head_dim"), nullptr);
  EXPECT_EQ(gpt::family_of(f.shape)->model_type, "qwen2");
}

TEST(GptExport, stretched_angles_are_written_for_transformers_4_and_5_from_options_too) {
  const char* const llama3 = R"({"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64, "rope_type": "llama3"})";
  const auto model = gpt(concat(R"({"num_layers": 1, "hidden_size": 24, "num_attention_heads": 4, "vocab_size": 99,
    "max_position_embeddings": 128, "activation": "swiglu", "normalization": "rmsnorm", "add_bias": false,
    "position_embedding_type": "rope", "ffn_hidden_size": 50, "rotary_base": 5e5, "rope_scaling": )",
                                llama3, "}"));
  const Value config = model->weight_rules("hf").config, scaling = parse_json(llama3, "test");
  EXPECT_EQ(config.find("rope_theta")->as_double(), 5e5);
  EXPECT_EQ(*config.find("rope_scaling"), scaling);
  Value both = scaling;
  both.set("rope_theta", 5e5);
  EXPECT_EQ(config.find("rope_parameters")->members().size(), both.members().size());
  for (const Value::Member& member : both.members())
    EXPECT_EQ(*config.find("rope_parameters")->find(member.key), member.value) << member.key;
  for (const char* old : {"rope_parameters", "rope_scaling"}) {
    Value alone = config;
    alone.erase(old);
    const gpt::RotaryScaling read = gpt::parse_config(alone, "written").shape.scaling;
    EXPECT_EQ(read.type, "llama3") << old;
    EXPECT_EQ(read.base, 5e5);
    EXPECT_EQ(read.factor, 8);
    EXPECT_EQ(read.original_positions, 64);
  }
}

TEST(GptExport, which_tokens_begin_and_end_a_text_is_no_guess) {
  for (const int size : {256, 512, 600}) {
    const auto model = gpt(concat(R"({"num_layers": 1, "hidden_size": 24, "num_attention_heads": 4,
      "max_position_embeddings": 32, "vocab_size": )",
                                  size, "}"));
    const Value config = model->weight_rules("hf").config;
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
      EXPECT_TRUE(config.find(key)->is_null()) << key;
  }
}

TEST(GptExport, what_is_written_reads_back_as_the_same_shape) {
  for (
      const char* options :
      {R"({"num_layers": 3, "hidden_size": 24, "num_attention_heads": 2, "vocab_size": 256, "max_position_embeddings": 32,
            "activation": "gelu", "norm_epsilon": 1e-4, "hidden_dropout": 0.1, "ffn_hidden_size": 50})",
       R"({"num_layers": 3, "hidden_size": 24, "num_attention_heads": 4, "num_query_groups": 2, "kv_channels": 10,
            "vocab_size": 999, "max_position_embeddings": 32, "activation": "swiglu", "normalization": "rmsnorm",
            "position_embedding_type": "rope", "add_bias": false, "ffn_hidden_size": 50, "rotary_base": 123456})",
       R"({"num_layers": 1, "hidden_size": 24, "num_attention_heads": 4, "kv_channels": 10, "vocab_size": 999,
            "max_position_embeddings": 32, "activation": "swiglu", "normalization": "rmsnorm",
            "position_embedding_type": "rope", "add_bias": false, "add_qkv_bias": true, "ffn_hidden_size": 50,
            "untie_embeddings_and_output_weights": true})"}) {
    const auto model = gpt(options);
    const Value config = model->weight_rules("hf").config;
    const auto f = gpt::parse_config(config, "written");
    EXPECT_EQ(f.shape.parameters(), model->facts().parameters);
    EXPECT_EQ(json_of(gpt::write_config(*f.family, f.shape, Value())), json_of(config));
  }
}

TEST(GptExport, qwen2_has_biases_in_the_q_k_v_layer_only) {
  const auto f = gpt::parse_config(qwen2_config(), "Q");
  const WeightRules rules = gpt::weight_rules(*f.family, f.shape);
  std::vector<std::string> biases;
  for (const WeightRule& rule : rules.rules)
    if (rule.param.ends_with(".bias")) biases.push_back(rule.param);
  EXPECT_EQ(biases, (std::vector<std::string>{"block.0.attn.qkv.bias", "block.1.attn.qkv.bias"}));
  ASSERT_EQ(rules.tied.size(), 1u);
  EXPECT_EQ(rules.tied[0].first, "lm_head.weight");
}

TEST(GptExport, a_shape_without_a_family_trains_but_is_not_written) {
  const auto model = gpt(R"({"num_layers": 1, "hidden_size": 24, "num_attention_heads": 4, "vocab_size": 256,
                             "max_position_embeddings": 32, "normalization": "rmsnorm"})");
  const std::string text = error_of([&] { model->weight_rules("hf"); });
  EXPECT_NE(text.find("no Hugging Face family can hold this model"), std::string::npos) << text;
}

}  // namespace
}  // namespace drivetrain::test
