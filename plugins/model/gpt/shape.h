// What a GPT looks like: the options people write, and the complete shape that comes out of them or of a Hugging Face
// folder. Value types. Errors: config, naming options and values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/layers.h>
#include <drivetrain/options.h>

#include "rotary_scaling.h"

namespace drivetrain::gpt {

// Of the layers whose MLP is a mixture of experts. No experts: there is none.
struct ExpertShape {
  int64_t experts = 0, chosen = 0, ffn = 0, shared_ffn = 0;
  bool shared_gate = false, renormalize = false;
  RouterScores scores = RouterScores::softmax;
  int64_t groups = 1, chosen_groups = 1;
  double scale = 1;
  std::vector<int64_t> layers;  // 1 or 0 for each layer; empty: all
  // Of the run: how loads are kept equal.
  BalanceLoss balance = BalanceLoss::none;
  double balance_weight = 0, z_weight = 0, bias_update_rate = 0;
  bool forced = false;
};

struct Shape {
  int64_t layers = 0, hidden = 0, heads = 0, groups = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
  bool rms = false, norm_gain = true, norm_bias = true, rotary = false, tied = true, parallel = false;
  bool qkv_bias = true, proj_bias = true, mlp_bias = true;
  NormPlacement norms = NormPlacement::before;
  std::optional<NormOver> qk_norm;
  std::string activation = "gelu_tanh";
  double norm_epsilon = 1e-5, norm_offset = 0, init_std = 0.02;
  double embedding_dropout = 0, hidden_dropout = 0, attention_dropout = 0;
  double embedding_scale = 1, attention_scale = 0, residual_scale = 1, logit_divisor = 1;
  double attention_softcap = 0, logit_softcap = 0;
  double rotary_percent = 1;
  RotaryScaling scaling;
  std::optional<double> local_base;    // of layers with a window, whose angles are not stretched; none: as all
  std::vector<int64_t> rotary_layers;  // 1 or 0 for each layer; empty: all
  int64_t window = 0;
  std::vector<int64_t> window_layers;  // 1 or 0 for each layer; empty: none
  ExpertShape mixture;

  bool gated() const;
  bool any_norm_bias() const { return norm_bias && !rms; }
  bool all_biases() const { return qkv_bias && proj_bias && mlp_bias; }
  int64_t qkv_width() const { return (heads + 2 * groups) * head_dim; }
  int64_t fc_width(int64_t inner) const { return gated() ? 2 * inner : inner; }
  int64_t fc_width() const { return fc_width(ffn); }
  int64_t rotary_dim() const;  // how many elements of a head turn
  double score_scale() const;  // of attention scores
  bool turns(int64_t layer) const { return rotary && (rotary_layers.empty() || rotary_layers[size_t(layer)]); }
  bool slides(int64_t layer) const { return !window_layers.empty() && window_layers[size_t(layer)]; }
  // 0: none. No position is beyond a window as long as the longest sequence.
  int64_t window_of(int64_t layer) const { return slides(layer) && window < positions ? window : 0; }
  bool is_local(int64_t layer) const { return slides(layer) && local_base.has_value(); }
  RotaryScaling scaling_of(int64_t layer) const { return is_local(layer) ? RotaryScaling{*local_base} : scaling; }
  bool is_mixture(int64_t layer) const {
    return mixture.experts > 0 && (mixture.layers.empty() || mixture.layers[size_t(layer)]);
  }
  bool any_dense() const;                          // whether a layer has no experts
  int64_t mixtures(int64_t before) const;          // how many layers in front of this one have experts
  int64_t matrix_parameters(int64_t layer) const;  // that a token is multiplied with
  int64_t matrix_parameters() const;               // of all layers, and of the output layer
  int64_t parameters() const;                      // all of them, a tied one once
  int64_t expert_parameters() const;               // of one expert
};

// Megatron's names where it has them, else those of config.json. Empty: from the folder, or the default.
struct Options {
  std::optional<std::string> from;
  Value family;
  std::optional<int64_t> num_layers, hidden_size, num_attention_heads, num_query_groups, kv_channels, ffn_hidden_size;
  std::optional<int64_t> vocab_size, max_position_embeddings, sliding_window;
  std::optional<std::string> normalization, norm_placement, qk_norm, activation, position_embedding_type;
  std::optional<double> norm_epsilon, norm_offset, rotary_base, rotary_percent, rotary_local_base;
  std::optional<double> init_method_std, hidden_dropout, embedding_dropout, attention_dropout;
  std::optional<double> embedding_multiplier, attention_multiplier, residual_multiplier, logits_scaling;
  std::optional<double> attn_logit_softcapping, final_logit_softcapping;
  Value rope_scaling, resize_embeddings;
  std::vector<int64_t> rotary_layers, window_layers;
  std::optional<bool> norm_gain, norm_bias, use_parallel_residual;
  std::optional<bool> add_bias, add_qkv_bias, add_proj_bias, add_mlp_bias, untie_embeddings_and_output_weights;
  std::optional<int64_t> num_experts, num_experts_per_tok, moe_intermediate_size, shared_expert_intermediate_size;
  std::optional<int64_t> first_k_dense_replace, n_group, topk_group;
  std::vector<int64_t> moe_layers;
  std::optional<bool> norm_topk_prob, shared_expert_gate, router_forced_balance;
  std::optional<std::string> router, aux_loss;
  std::optional<double> routed_scaling_factor, router_aux_loss_coef, router_z_loss_coef, router_bias_update_rate;
};
TableBuilder<Options> option_table();

// The shape that the options describe. `defaults`: options of a family for what they leave open, or null.
Shape shape_from_options(const Options& options, const Value& defaults);
// Options given beside a folder must say what it says. Dropout and initial values are the run's own and replace the
// folder's.
Shape shape_from_folder(const Options& options, const Shape& folder, const std::string& config_path);

// Every option that a shape decides, by name. Biases are those of each layer: there is no add_bias.
Value facts_of(const Shape& shape);
// Of the run rather than of the model: dropout and initial values.
bool is_of_training(const std::string& option);
// What the options left open, as the shape has it.
void fill_in(Options& options, const Shape& shape);

}  // namespace drivetrain::gpt
