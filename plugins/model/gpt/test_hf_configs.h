// A config.json of each family for tests of its reader.
#pragma once

#include "hf_config.h"

namespace drivetrain::test {

inline const std::string kGoldenFamilies = DRIVETRAIN_GOLDEN_DIR "/families/";

// Every key that changes numbers, in every spelling; of the other families, the keys that transformers 5 writes.
inline Value whole_config(const std::string& family) {
  if (family == "gpt2")
    return parse_json(R"({"model_type": "gpt2", "vocab_size": 300, "n_layer": 2, "num_hidden_layers": 2, "n_embd": 48,
        "hidden_size": 48, "n_head": 4, "num_attention_heads": 4, "n_positions": 64, "n_ctx": 64,
        "max_position_embeddings": 64, "n_inner": 100, "activation_function": "gelu", "layer_norm_epsilon": 1e-4,
        "resid_pdrop": 0.1, "embd_pdrop": 0.2, "attn_pdrop": 0.3, "initializer_range": 0.03,
        "tie_word_embeddings": true, "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false,
        "add_cross_attention": false, "dtype": "float32", "torch_dtype": "float32"})",
                      "test");
  if (family == "llama")
    return parse_json(R"({"model_type": "llama", "vocab_size": 300, "num_hidden_layers": 2, "hidden_size": 48,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 80,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "attention_dropout": 0.1, "initializer_range": 0.03,
        "tie_word_embeddings": false, "rope_theta": 10000, "rope_scaling": null,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "partial_rotary_factor": 1.0,
        "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "layer_types": ["full_attention"],
        "dtype": "bfloat16", "torch_dtype": "torch.bfloat16"})",
                      "test");
  if (family == "mistral")
    return parse_json(R"({"model_type": "mistral", "vocab_size": 300, "num_hidden_layers": 2, "hidden_size": 48,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 80,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "attention_dropout": 0.1, "initializer_range": 0.03,
        "tie_word_embeddings": false, "rope_theta": 10000, "sliding_window": null, "hidden_act": "silu",
        "dtype": "bfloat16"})",
                      "test");
  if (family == "qwen2")
    return parse_json(R"({"model_type": "qwen2", "vocab_size": 300, "num_hidden_layers": 2, "hidden_size": 48,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 80, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "attention_dropout": 0.1, "initializer_range": 0.03, "tie_word_embeddings": true,
        "rope_theta": 10000, "hidden_act": "silu", "use_sliding_window": false, "sliding_window": 32,
        "max_window_layers": 0, "torch_dtype": "bfloat16"})",
                      "test");
  return read_json_file(kGoldenFamilies + (family == "gemma3_text" ? "gemma3" : family) + "/config.json");
}

}  // namespace drivetrain::test
