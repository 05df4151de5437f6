// The families of Hugging Face folders that are known, as data in the form that the option "family" takes (family.h;
// the README describes it). "like" begins with another one's rows.
//
// Source: transformers 4.57 and 5.23, models/*/configuration_*.py and modeling_*.py; InternLM2: its own modeling file.
#include "family.h"

namespace drivetrain::gpt {

const char* const kFamilies = R"json([
{ "model_type": "", "title": "",
  "keys": {
    "model_type": {"reads": "family", "why": "has to be there; which family"},
    "vocab_size": "vocab_size",
    "tie_word_embeddings": {"sets": "untie_embeddings_and_output_weights", "not": true, "absent": false},
    "initializer_range": {"sets": "init_method_std", "absent": 0.02, "why": "of values that no file gives"},
    "dtype|torch_dtype": {"reads": "dtype", "why": "the type of exported weights (`save_dtype`)"},
    "add_cross_attention": {"only": [false], "why": "there is no encoder to attend to"},
    "is_encoder_decoder": {"only": [false], "why": "there is no encoder to attend to"},
    "pruned_heads": {"only": [{}, []], "why": "all blocks have the same number of heads"},
    "quantization_config": {"only": [], "why": "weights must be float32, bfloat16 or float16"},
    "architectures": {"no_effect": "tensors show it"},
    "transformers_version": {"no_effect": "who wrote the file"},
    "auto_map": {"no_effect": "whose code another program runs"},
    "use_cache|cache_implementation|task_specific_params|max_length|min_length|do_sample|early_stopping|num_beams|num_beam_groups|diversity_penalty|temperature|top_k|top_p|typical_p|repetition_penalty|length_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|bad_words_ids|num_return_sequences|forced_bos_token_id|forced_eos_token_id|remove_invalid_values|exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens": {"no_effect": "of generation"},
    "bos_token_id|eos_token_id|pad_token_id|sep_token_id": {"no_effect": "kept for export"},
    "decoder_start_token_id|cross_attention_hidden_size|tie_encoder_decoder": {"no_effect": "of an encoder's decoder"},
    "is_decoder": {"no_effect": "every model here is causal"},
    "tokenizer_class|prefix": {"no_effect": "of the tokenizer"},
    "chunk_size_feed_forward": {"no_effect": "cuts the MLP's rows"},
    "id2label|label2id|num_labels|classifier_dropout|problem_type|finetuning_task": {"no_effect": "of a classifier"},
    "output_attentions|output_hidden_states|return_dict|return_dict_in_generate|output_scores": {"no_effect": "what a call returns"},
    "torchscript": {"no_effect": "how a model is compiled"},
    "use_bfloat16|tf_legacy_loss": {"no_effect": "of TensorFlow"},
    "attn_implementation": {"no_effect": "which kernel"},
    "gradient_checkpointing": {"no_effect": "memory of training"}}},

{ "like": "", "model_type": "gpt2", "title": "GPT-2", "architecture": "GPT2LMHeadModel",
  "options": {"add_qkv_bias": true, "add_proj_bias": true, "add_mlp_bias": true},
  "keys": {
    "tie_word_embeddings": {"sets": "untie_embeddings_and_output_weights", "not": true, "absent": true},
    "n_layer|num_hidden_layers": "num_layers",
    "n_embd|hidden_size": "hidden_size",
    "n_head|num_attention_heads": "num_attention_heads",
    "n_positions|n_ctx|max_position_embeddings": "max_position_embeddings",
    "n_inner": {"sets": "ffn_hidden_size", "absent": null, "why": "4 times n_embd"},
    "activation_function": {"sets": "activation", "absent": "gelu_new", "values": {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu"}},
    "layer_norm_epsilon": {"sets": "norm_epsilon", "absent": 1e-5},
    "resid_pdrop": {"sets": "hidden_dropout", "absent": 0.1},
    "embd_pdrop": {"sets": "embedding_dropout", "absent": 0.1},
    "attn_pdrop": {"sets": "attention_dropout", "absent": 0.1},
    "scale_attn_weights": {"only": [true], "why": "attention is always scaled by 1 / sqrt(head size)"},
    "scale_attn_by_inverse_layer_idx": {"only": [false], "why": "attention is scaled alike in every block"},
    "reorder_and_upcast_attn": {"no_effect": "precision of attention"},
    "summary_type|summary_use_proj|summary_activation|summary_proj_to_labels|summary_first_dropout": {"no_effect": "of a classifier"}},
  "prefix": "transformer.", "ignored": ["h\\.[0-9]+\\.attn\\.(masked_)?bias"],
  "tensors": {
    "embedding.word": "transformer.wte", "embedding.position": "transformer.wpe",
    "block.{}.norm1": "transformer.h.{}.ln_1",
    "block.{}.attn.qkv": {"tensor": "transformer.h.{}.attn.c_attn", "transposed": true},
    "block.{}.attn.proj": {"tensor": "transformer.h.{}.attn.c_proj", "transposed": true},
    "block.{}.norm2": "transformer.h.{}.ln_2",
    "block.{}.mlp.fc": {"tensor": "transformer.h.{}.mlp.c_fc", "transposed": true},
    "block.{}.mlp.proj": {"tensor": "transformer.h.{}.mlp.c_proj", "transposed": true},
    "final_norm": "transformer.ln_f", "head": "lm_head"}},

{ "like": "", "model_type": "llama", "title": "Llama", "architecture": "LlamaForCausalLM",
  "options": {"normalization": "rmsnorm", "position_embedding_type": "rope"},
  "rope": {"theta": 10000},
  "keys": {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": {"sets": "num_query_groups", "absent": null, "why": "as many as heads"},
    "head_dim": {"sets": "kv_channels", "absent": null, "why": "hidden_size / num_attention_heads", "optional": true},
    "intermediate_size": "ffn_hidden_size",
    "max_position_embeddings": "max_position_embeddings",
    "rms_norm_eps": {"sets": "norm_epsilon", "absent": 1e-6},
    "attention_dropout": {"sets": "attention_dropout", "absent": 0},
    "hidden_act": {"sets": "activation", "absent": "silu", "values": {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh", "gelu_new": "geglu_tanh", "relu": "reglu"}},
    "attention_bias": {"sets": ["add_qkv_bias", "add_proj_bias"], "absent": false},
    "mlp_bias": {"sets": "add_mlp_bias", "absent": false},
    "rope_parameters|rope_scaling": {"reads": "rope", "why": "rope_type default, linear, dynamic, llama3, yarn or longrope"},
    "rope_theta": {"reads": "rope", "why": "the same as in rope_parameters"},
    "partial_rotary_factor": {"only": [1], "why": "rope turns whole heads"},
    "layer_types": {"reads": "window", "why": "as sliding_window says, or refused"},
    "pretraining_tp": {"no_effect": "cuts products and adds the parts"}},
  "prefix": "model.", "ignored": ["(layers\\.[0-9]+\\.self_attn\\.)?rotary_emb\\.inv_freq"],
  "tensors": {
    "embedding.word": "model.embed_tokens",
    "block.{}.norm1": "model.layers.{}.input_layernorm",
    "block.{}.attn.qkv": ["model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.k_proj", "model.layers.{}.self_attn.v_proj"],
    "block.{}.attn.proj": "model.layers.{}.self_attn.o_proj",
    "block.{}.norm2": "model.layers.{}.post_attention_layernorm",
    "block.{}.mlp.fc": ["model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"],
    "block.{}.mlp.proj": "model.layers.{}.mlp.down_proj",
    "final_norm": "model.norm", "head": "lm_head"}},

{ "like": "llama", "model_type": "qwen2", "title": "Qwen2", "architecture": "Qwen2ForCausalLM",
  "options": {"add_qkv_bias": true},
  "window": {"size": 4096, "layers": "from max_window_layers", "switch": true, "types": true},
  "keys": {
    "num_key_value_heads": {"sets": "num_query_groups", "absent": 32, "why": "null: as many as heads"},
    "attention_bias": null, "mlp_bias": null,
    "use_sliding_window|sliding_window|max_window_layers|layer_types": {"reads": "window", "why": "which layers have a window, and its size"}}},

{ "like": "qwen2", "model_type": "qwen3", "title": "Qwen3", "architecture": "Qwen3ForCausalLM",
  "options": {"add_qkv_bias": null, "qk_norm": "head"},
  "keys": {
    "head_dim": {"sets": "kv_channels", "absent": 128},
    "attention_bias": {"sets": ["add_qkv_bias", "add_proj_bias"], "absent": false}},
  "tensors": {
    "block.{}.attn.q_norm": "model.layers.{}.self_attn.q_norm", "block.{}.attn.k_norm": "model.layers.{}.self_attn.k_norm"}},

{ "like": "llama", "model_type": "mistral", "title": "Mistral", "architecture": "MistralForCausalLM",
  "window": {"size": 4096, "layers": "all"},
  "keys": {
    "num_key_value_heads": {"sets": "num_query_groups", "absent": 8, "why": "null: as many as heads"},
    "attention_bias": null, "mlp_bias": null,
    "sliding_window": {"reads": "window", "why": "absent: 4096; of all layers"}}},

{ "like": "llama", "model_type": "olmo2", "title": "OLMo 2", "architecture": "Olmo2ForCausalLM",
  "options": {"norm_placement": "after", "qk_norm": "heads"},
  "keys": {
    "rms_norm_eps": {"sets": "norm_epsilon", "absent": 1e-5},
    "mlp_bias": null},
  "tensors": {
    "block.{}.norm1": null, "block.{}.norm2": null,
    "block.{}.attn.q_norm": "model.layers.{}.self_attn.q_norm", "block.{}.attn.k_norm": "model.layers.{}.self_attn.k_norm",
    "block.{}.attn_norm": "model.layers.{}.post_attention_layernorm",
    "block.{}.mlp_norm": "model.layers.{}.post_feedforward_layernorm"}},

{ "like": "olmo2", "model_type": "olmo3", "title": "OLMo 3", "architecture": "Olmo3ForCausalLM",
  "rope": {"theta": 500000, "local": "same"},
  "window": {"size": 4096, "layers": 4, "types": true},
  "keys": {
    "sliding_window|layer_types": {"reads": "window", "why": "absent: all but every fourth layer have a window"}}},

{ "like": "llama", "model_type": "olmo", "title": "OLMo", "architecture": "OlmoForCausalLM",
  "options": {"normalization": "layernorm", "norm_gain": false, "norm_bias": false, "norm_epsilon": 1e-5},
  "keys": {
    "rms_norm_eps": null, "mlp_bias": null,
    "clip_qkv": {"only": [], "why": "queries, keys and values are not clipped"}},
  "tensors": {"block.{}.norm1": null, "block.{}.norm2": null, "final_norm": null}},

{ "like": "llama", "model_type": "smollm3", "title": "SmolLM3", "architecture": "SmolLM3ForCausalLM",
  "rope": {"theta": 2000000},
  "window": {"size": null, "layers": "without rope", "switch": true, "types": true},
  "no_rope_interval": 4,
  "keys": {
    "tie_word_embeddings": {"sets": "untie_embeddings_and_output_weights", "not": true, "absent": true},
    "num_key_value_heads": {"sets": "num_query_groups", "absent": 4, "why": "null: as many as heads"},
    "no_rope_layers|no_rope_layer_interval": {"reads": "rotary_layers", "why": "absent: every fourth layer is without rope"},
    "use_sliding_window|sliding_window|layer_types": {"reads": "window", "why": "which layers have a window, and its size"},
    "max_window_layers": {"no_effect": "layer_types says it"}}},

{ "like": "llama", "model_type": "phi3", "title": "Phi-3", "architecture": "Phi3ForCausalLM",
  "rope": {"theta": 10000, "percent": 1, "original": 4096},
  "window": {"size": null, "layers": "all"},
  "keys": {
    "attention_bias": null, "mlp_bias": null,
    "rms_norm_eps": {"sets": "norm_epsilon", "absent": 1e-5},
    "resid_pdrop": {"sets": "hidden_dropout", "absent": 0},
    "embd_pdrop": {"sets": "embedding_dropout", "absent": 0},
    "partial_rotary_factor": {"reads": "rope", "why": "absent: 1"},
    "original_max_position_embeddings": {"reads": "rope", "why": "of longrope; absent: 4096"},
    "sliding_window": {"reads": "window", "why": "of all layers"}},
  "tensors": {
    "block.{}.attn.qkv": "model.layers.{}.self_attn.qkv_proj",
    "block.{}.mlp.fc": "model.layers.{}.mlp.gate_up_proj"}},

{ "like": "llama", "model_type": "gemma", "title": "Gemma", "architecture": "GemmaForCausalLM",
  "options": {"norm_offset": 1, "embedding_multiplier": "sqrt(hidden_size)"},
  "keys": {
    "tie_word_embeddings": {"sets": "untie_embeddings_and_output_weights", "not": true, "absent": true},
    "num_key_value_heads": {"sets": "num_query_groups", "absent": 16, "why": "null: as many as heads"},
    "head_dim": {"sets": "kv_channels", "absent": 256},
    "hidden_act": {"sets": "activation", "absent": "gelu_pytorch_tanh", "values": {"gelu_pytorch_tanh": "geglu_tanh", "gelu": "geglu_tanh", "gelu_new": "geglu_tanh"}, "why": "gelu, too, is its approximation by tanh"},
    "hidden_activation": {"only": ["gelu_pytorch_tanh"], "why": "the gated MLP uses gelu_pytorch_tanh"},
    "use_bidirectional_attention": {"only": [false], "why": "every model here is causal"},
    "mlp_bias": null}},

{ "like": "gemma", "model_type": "gemma2", "title": "Gemma 2", "architecture": "Gemma2ForCausalLM",
  "options": {"norm_placement": "both"},
  "window": {"size": 4096, "layers": 2, "types": true},
  "keys": {
    "num_key_value_heads": {"sets": "num_query_groups", "absent": 4, "why": "null: as many as heads"},
    "hidden_act": {"no_effect": "hidden_activation says it"},
    "hidden_activation": {"sets": "activation", "absent": "gelu_pytorch_tanh", "values": {"gelu_pytorch_tanh": "geglu_tanh", "gelu_new": "geglu_tanh", "gelu": "geglu", "silu": "swiglu", "relu": "reglu"}},
    "query_pre_attn_scalar": {"sets": "attention_multiplier", "power": -0.5, "absent": 256, "why": "scores are divided by its root"},
    "attn_logit_softcapping": {"sets": "attn_logit_softcapping", "absent": 50, "null": 0, "why": "null: none"},
    "final_logit_softcapping": {"sets": "final_logit_softcapping", "absent": 30, "null": 0, "why": "null: none"},
    "sliding_window|layer_types": {"reads": "window", "why": "absent: every second layer from the first has a window of 4096"}},
  "tensors": {
    "block.{}.attn_norm": "model.layers.{}.post_attention_layernorm",
    "block.{}.norm2": "model.layers.{}.pre_feedforward_layernorm",
    "block.{}.mlp_norm": "model.layers.{}.post_feedforward_layernorm"}},

{ "like": "gemma2", "model_type": "gemma3_text", "title": "Gemma 3", "architecture": "Gemma3ForCausalLM",
  "options": {"qk_norm": "head"},
  "rope": {"theta": 1000000, "local": 10000},
  "window": {"size": 4096, "layers": 6, "types": true},
  "keys": {
    "attn_logit_softcapping": {"sets": "attn_logit_softcapping", "absent": 0, "null": 0, "why": "null: none"},
    "final_logit_softcapping": {"sets": "final_logit_softcapping", "absent": 0, "null": 0, "why": "null: none"},
    "rope_local_base_freq": {"reads": "rope", "why": "of layers with a window; absent: 10000"},
    "sliding_window|layer_types": null,
    "sliding_window|layer_types|sliding_window_pattern": {"reads": "window", "why": "absent: all but every sixth layer have a window"}},
  "tensors": {
    "block.{}.attn.q_norm": "model.layers.{}.self_attn.q_norm", "block.{}.attn.k_norm": "model.layers.{}.self_attn.k_norm"}},

{ "like": "llama", "model_type": "granite", "title": "Granite", "architecture": "GraniteForCausalLM",
  "keys": {
    "embedding_multiplier": {"sets": "embedding_multiplier", "absent": 1},
    "attention_multiplier": {"sets": "attention_multiplier", "absent": 1},
    "residual_multiplier": {"sets": "residual_multiplier", "absent": 1},
    "logits_scaling": {"sets": "logits_scaling", "absent": 1}}},

{ "like": "llama", "model_type": "internlm2", "title": "InternLM2", "architecture": "InternLM2ForCausalLM",
  "keys": {
    "attention_bias": null, "mlp_bias": null, "head_dim": null, "attention_dropout": null,
    "bias": {"sets": ["add_qkv_bias", "add_proj_bias"], "absent": true},
    "attn_implementation": {"no_effect": "which kernel"}},
  "tensors": {
    "embedding.word": "model.tok_embeddings",
    "block.{}.norm1": "model.layers.{}.attention_norm",
    "block.{}.attn.qkv": {"tensor": "model.layers.{}.attention.wqkv", "rows": "by group"},
    "block.{}.attn.proj": "model.layers.{}.attention.wo",
    "block.{}.norm2": "model.layers.{}.ffn_norm",
    "block.{}.mlp.fc": ["model.layers.{}.feed_forward.w1", "model.layers.{}.feed_forward.w3"],
    "block.{}.mlp.proj": "model.layers.{}.feed_forward.w2",
    "head": "output"}},

{ "like": "llama", "model_type": "stablelm", "title": "StableLM", "architecture": "StableLmForCausalLM",
  "options": {"normalization": "layernorm"},
  "rope": {"theta": 10000, "percent": 0.25},
  "keys": {
    "attention_bias": null, "mlp_bias": null, "head_dim": null, "rms_norm_eps": null,
    "num_key_value_heads": {"sets": "num_query_groups", "absent": 32, "why": "null: as many as heads"},
    "layer_norm_eps": {"sets": "norm_epsilon", "absent": 1e-5},
    "hidden_dropout": {"only": [0], "why": "it acts on the MLP alone"},
    "use_qkv_bias": {"sets": "add_qkv_bias", "absent": false},
    "partial_rotary_factor": {"reads": "rope", "why": "absent: 0.25"},
    "qk_layernorm": {"only": [false], "why": "norms of queries and keys have one weight for all heads, and these have one each"},
    "use_parallel_residual": {"only": [false], "why": "its parallel branches share one norm"}}},

{ "like": "llama", "model_type": "starcoder2", "title": "StarCoder2", "architecture": "Starcoder2ForCausalLM",
  "options": {"normalization": "layernorm"},
  "window": {"size": null, "layers": "all"},
  "keys": {
    "attention_bias": null, "mlp_bias": null, "rms_norm_eps": null,
    "tie_word_embeddings": {"sets": "untie_embeddings_and_output_weights", "not": true, "absent": true},
    "num_key_value_heads": {"sets": "num_query_groups", "absent": 2, "why": "null: as many as heads"},
    "initializer_range": {"sets": "init_method_std", "absent": 0.018042, "why": "of values that no file gives"},
    "norm_epsilon": {"sets": "norm_epsilon", "absent": 1e-5},
    "use_bias": {"sets": ["add_qkv_bias", "add_proj_bias", "add_mlp_bias"], "absent": true},
    "residual_dropout": {"sets": "hidden_dropout", "absent": 0},
    "embedding_dropout": {"sets": "embedding_dropout", "absent": 0},
    "hidden_act": {"sets": "activation", "absent": "gelu_pytorch_tanh", "values": {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu", "silu": "silu", "swish": "silu", "relu": "relu"}},
    "sliding_window": {"reads": "window", "why": "of all layers"},
    "norm_type": {"only": ["layer_norm"], "why": "its norms are layer norms"},
    "mlp_type": {"only": ["default"], "why": "its MLP has no gate"}},
  "tensors": {
    "block.{}.mlp.fc": "model.layers.{}.mlp.c_fc", "block.{}.mlp.proj": "model.layers.{}.mlp.c_proj"}},

{ "like": "llama", "model_type": "gpt_neox", "title": "GPT-NeoX", "architecture": "GPTNeoXForCausalLM",
  "options": {"normalization": "layernorm", "add_mlp_bias": true},
  "rope": {"theta": 10000, "percent": 0.25, "theta_key": "rotary_emb_base", "percent_key": "rotary_pct"},
  "keys": {
    "mlp_bias": null, "head_dim": null, "rms_norm_eps": null, "num_key_value_heads": null, "partial_rotary_factor": null,
    "rope_theta": {"reads": "rope", "why": "the same as rotary_emb_base"},
    "layer_norm_eps": {"sets": "norm_epsilon", "absent": 1e-5},
    "hidden_dropout": {"sets": ["hidden_dropout", "embedding_dropout"], "absent": 0},
    "attention_bias": {"sets": ["add_qkv_bias", "add_proj_bias"], "absent": true},
    "use_parallel_residual": {"sets": "use_parallel_residual", "absent": true},
    "rotary_emb_base": {"reads": "rope", "why": "absent: 10000"},
    "rotary_pct": {"reads": "rope", "why": "absent: 0.25"},
    "hidden_act": {"sets": "activation", "absent": "gelu", "values": {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "silu": "silu", "swish": "silu", "relu": "relu"}}},
  "prefix": "gpt_neox.", "ignored": ["layers\\.[0-9]+\\.attention\\.((masked_)?bias|rotary_emb\\.inv_freq)"],
  "tensors": {
    "embedding.word": "gpt_neox.embed_in",
    "block.{}.norm1": "gpt_neox.layers.{}.input_layernorm",
    "block.{}.attn.qkv": {"tensor": "gpt_neox.layers.{}.attention.query_key_value", "rows": "by group"},
    "block.{}.attn.proj": "gpt_neox.layers.{}.attention.dense",
    "block.{}.norm2": "gpt_neox.layers.{}.post_attention_layernorm",
    "block.{}.mlp.fc": "gpt_neox.layers.{}.mlp.dense_h_to_4h",
    "block.{}.mlp.proj": "gpt_neox.layers.{}.mlp.dense_4h_to_h",
    "final_norm": "gpt_neox.final_layer_norm", "head": "embed_out"}}
])json";

}  // namespace drivetrain::gpt
