// Source: Megatron-LM, megatron/core/models/gpt/gpt_model.py, transformer/{attention,mlp,transformer_layer}.py,
// transformer/moe/{experts,router,shared_experts,moe_utils}.py. Legend: C head size, H query heads, G key/value heads.
#include "megatron_rules.h"

#include <drivetrain/error.h>

namespace drivetrain::gpt {
namespace {

class Rules {
 public:
  explicit Rules(const Shape& shape) : s(shape) {}

  // A layer's weight and, where there is one, its bias. `parts`: names without ".weight".
  void layer(const std::string& ours, const std::vector<WeightPart>& parts, bool bias) {
    for (const char* const suffix : {".weight", ".bias"}) {
      if (suffix == std::string(".bias") && !bias) continue;
      std::vector<WeightPart> named = parts;
      for (WeightPart& part : named) part.name += suffix;
      rules.rules.push_back({ours + suffix, std::move(named), false});
    }
  }
  void norm(const std::string& ours, const std::string& theirs) { layer(ours, {{theirs, s.hidden}}, !s.rms); }

  // Ours are all queries, all keys, all values. Megatron's rows go by group: its H / G queries, its key, its value.
  std::vector<WeightPart> qkv(const std::string& name) const {
    const int64_t queries = s.heads / s.groups * s.head_dim, group = queries + 2 * s.head_dim;
    std::vector<WeightPart> parts;
    const auto add = [&](int64_t first, int64_t rows) {
      for (int64_t g = 0; g < s.groups; ++g) parts.push_back({name, rows, true, g * group + first});
    };
    add(0, queries), add(queries, s.head_dim), add(queries + s.head_dim, s.head_dim);
    return parts;
  }

  void block(int64_t i) {
    const std::string ours = concat("block.", i, "."), theirs = concat("decoder.layers.", i, ".");
    norm(ours + "norm1", theirs + "input_layernorm");
    layer(ours + "attn.qkv", qkv(theirs + "self_attention.linear_qkv"), s.qkv_bias);
    if (s.qk_norm)
      for (const char* const one : {"q", "k"})
        layer(concat(ours, "attn.", one, "_norm"), {{concat(theirs, "self_attention.", one, "_layernorm"), s.head_dim}},
              false);
    layer(ours + "attn.proj", {{theirs + "self_attention.linear_proj", s.hidden}}, s.proj_bias);
    norm(ours + "norm2", theirs + "pre_mlp_layernorm");
    if (s.is_mixture(i)) return mixture(ours + "mlp.", theirs + "mlp.");
    layer(ours + "mlp.fc", {{theirs + "mlp.linear_fc1", s.fc_width()}}, s.mlp_bias);  // gated: gate, then up, as ours
    layer(ours + "mlp.proj", {{theirs + "mlp.linear_fc2", s.hidden}}, s.mlp_bias);
  }

  void mixture(const std::string& ours, const std::string& theirs) {
    const ExpertShape& m = s.mixture;
    layer(ours + "router", {{theirs + "router", m.experts}}, false);
    std::vector<WeightPart> fc, proj;
    for (int64_t e = 0; e < m.experts; ++e) {
      const std::string expert = concat(theirs, "experts.local_experts.", e, ".");
      fc.push_back({expert + "linear_fc1", s.fc_width(m.ffn)}), proj.push_back({expert + "linear_fc2", s.hidden});
    }
    layer(ours + "experts.fc", fc, false), layer(ours + "experts.proj", proj, false);
    if (m.shared_ffn == 0) return;
    layer(ours + "shared.fc", {{theirs + "shared_experts.linear_fc1", s.fc_width(m.shared_ffn)}}, false);
    layer(ours + "shared.proj", {{theirs + "shared_experts.linear_fc2", s.hidden}}, false);
    if (m.shared_gate)
      rules.rules.push_back({ours + "shared_gate.weight", {{theirs + "shared_experts.gate_weight", 1}}, false});
  }

  // One row per token, padded to a multiple of 128 times the tensor ranks.
  WeightPart vocabulary(const std::string& name) const { return {name, s.vocab, true, 0, true}; }

  const Shape& s;
  WeightRules rules;
};

// Options that Megatron-LM's files have no place for.
std::string beyond(const Shape& s) {
  std::string list;
  const auto add_if = [&](bool is_there, const char* option) {
    if (is_there) list += concat(list.empty() ? "" : ", ", option);
  };
  add_if(s.norms != NormPlacement::before, "norm_placement"), add_if(!s.norm_gain, "norm_gain");
  add_if(!s.rms && !s.norm_bias, "norm_bias"), add_if(s.norm_offset != 0, "norm_offset"),
      add_if(s.qk_norm == NormOver::heads, "qk_norm heads"),
      add_if(s.qk_norm && !s.rms, "qk_norm with normalization layernorm (there these norms are layer norms, too)");
  add_if(s.parallel, "use_parallel_residual");
  add_if(s.proj_bias != s.mlp_bias || (s.mlp_bias && !s.qkv_bias), "biases in only some of the linear layers");
  add_if(s.rotary_percent != 1, "rotary_percent"), add_if(!s.rotary_layers.empty(), "rotary_layers");
  add_if(s.scaling.type != "default" && s.scaling.type != "llama3", "rope_scaling");
  bool slides = false;
  for (int64_t i = 0; i < s.layers; ++i) slides = slides || s.window_of(i) > 0;
  add_if(slides, "sliding_window"), add_if(s.local_base.has_value(), "rotary_local_base");
  add_if(s.embedding_scale != 1, "embedding_multiplier"), add_if(s.residual_scale != 1, "residual_multiplier");
  add_if(s.logit_divisor != 1, "logits_scaling"), add_if(s.attention_softcap > 0, "attn_logit_softcapping");
  add_if(s.logit_softcap > 0, "final_logit_softcapping");
  const ExpertShape& m = s.mixture;
  const bool sigmoid = m.scores == RouterScores::sigmoid;
  add_if(m.experts > 0 && sigmoid && m.renormalize != (m.chosen > 1), "router sigmoid with this norm_topk_prob");
  // It takes as many of a group's best as a token then has of it, and with softmax the logits.
  add_if(m.groups > 1 && (!sigmoid || m.chosen != 2 * m.chosen_groups), "n_group");
  add_if(m.bias_update_rate > 0, "router_bias_update_rate");
  return list;
}

}  // namespace

WeightRules megatron_rules(const Shape& s) {
  if (const std::string options = beyond(s); !options.empty())
    throw fail(ErrorCode::config, "model/gpt: Megatron-LM's checkpoints are read and written without ", options,
               "\n   use a Hugging Face folder (\"from\", or the run's final/)");
  Rules list(s);
  list.layer("embedding.word", {list.vocabulary("embedding.word_embeddings")}, false);
  if (!s.rotary) list.layer("embedding.position", {{"embedding.position_embeddings", s.positions}}, false);
  for (int64_t i = 0; i < s.layers; ++i) list.block(i);
  list.norm("final_norm", "decoder.final_layernorm");
  // A tied output layer is there where it stands on another pipeline rank than the embedding.
  if (s.tied)
    list.rules.tied = {{"output_layer.weight", "embedding.word.weight"}};
  else
    list.layer("head", {list.vocabulary("output_layer")}, false);
  list.rules.config = megatron_facts(s);
  return list.rules;
}

Value megatron_facts(const Shape& s) {
  Value facts = Value::object();
  const auto number = [](int64_t size) { return Value(size); };
  facts.set("num_layers", number(s.layers)), facts.set("hidden_size", number(s.hidden));
  if (s.any_dense()) facts.set("ffn_hidden_size", number(s.ffn));
  facts.set("num_attention_heads", number(s.heads));
  facts.set("num_query_groups", number(s.groups)), facts.set("kv_channels", number(s.head_dim));
  facts.set("normalization", s.rms ? "RMSNorm" : "LayerNorm"), facts.set("norm_epsilon", s.norm_epsilon);
  facts.set("qk_layernorm", s.qk_norm.has_value());
  facts.set("activation", s.activation);  // ours are named as Megatron's options and functions
  facts.set("softmax_scale", s.score_scale());
  facts.set("position_embedding_type", s.rotary ? "rope" : "learned_absolute");
  if (s.rotary) facts.set("rotary_base", s.scaling.base), facts.set("rope_scaling", scaling_value(s.scaling));
  facts.set("add_bias_linear", s.all_biases()), facts.set("add_qkv_bias", s.qkv_bias && !s.all_biases());
  facts.set("untie_embeddings_and_output_weights", !s.tied);
  const ExpertShape& m = s.mixture;
  facts.set("num_experts", number(m.experts));
  if (m.experts == 0) return facts;
  facts.set("moe_router_topk", number(m.chosen)), facts.set("moe_ffn_hidden_size", number(m.ffn));
  facts.set("moe_shared_expert_intermediate_size", number(m.shared_ffn));
  facts.set("moe_shared_expert_gate", m.shared_gate);
  const bool softmax = m.scores == RouterScores::softmax;
  facts.set("moe_router_score_function", softmax ? "softmax" : "sigmoid");
  if (softmax) facts.set("moe_router_pre_softmax", !m.renormalize);
  facts.set("moe_router_topk_scaling_factor", m.scale);
  facts.set("moe_router_num_groups", number(m.groups)), facts.set("moe_router_group_topk", number(m.chosen_groups));
  Value::Array layers;
  for (int64_t i = 0; i < s.layers; ++i) layers.emplace_back(s.is_mixture(i) ? 1 : 0);
  facts.set("moe_layer_freq", layers);
  return facts;
}

}  // namespace drivetrain::gpt
