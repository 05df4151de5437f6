// The table of options, and what they have to do with a shape: defaults, contradictions, and the way back.
#include <drivetrain/error.h>

#include <algorithm>
#include <cmath>

#include "experts.h"
#include "hf_keys.h"
#include "shape_problems.h"

namespace drivetrain::gpt {
namespace {

const OptionTable& fields() {
  static const OptionTable table = option_table();
  return table;
}

// An option that nobody gave.
bool is_open(const Value& value) { return value.is_null() || (value.is_array() && value.items().empty()); }

void fill_from(Options& o, const Value& values) {
  for (const OptionField& field : fields().fields())
    if (const Value* const value = values.find(field.name); value && !value->is_null() && is_open(field.get(&o)))
      field.set(&o, *value);
}

std::string qk_norm_name(const Shape& s) {
  if (!s.qk_norm) return "none";
  return *s.qk_norm == NormOver::head ? "head" : "heads";
}

Value flags_of(const std::vector<int64_t>& numbers) { return Value(Value::Array(numbers.begin(), numbers.end())); }

constexpr const char* kPlacements[] = {"before", "after", "both"};

}  // namespace

TableBuilder<Options> option_table() {
  using O = Options;
  return with_expert_options(
      table<O>()
          .field(
              "from", &O::from,
              "folder of the initial weights: a Hugging Face folder (the README lists the families), which gives the "
              "shape too, or a checkpoint of this or another program")
          .path()
          .field(
              "family", &O::family,
              "a family of models, which names the tensors and keys of Hugging Face folders and sets what its models "
              "have in common: a name of the README's table, or an object that describes one; default: the folder's")
          .field("num_layers", &O::num_layers, "blocks")
          .alias("n_layer")
          .alias("num_hidden_layers")
          .range(1, kMostLayers)
          .field("hidden_size", &O::hidden_size, "width of the residual stream")
          .alias("n_embd")
          .range(1, kLargestSize)
          .field("num_attention_heads", &O::num_attention_heads, "query heads")
          .alias("n_head")
          .range(1, kLargestSize)
          .field("num_query_groups", &O::num_query_groups, "key/value heads; default: as many as query heads")
          .alias("num_key_value_heads")
          .range(1, kLargestSize)
          .field("kv_channels", &O::kv_channels, "head dimension; default: hidden_size / num_attention_heads")
          .alias("head_dim")
          .range(1, kLargestSize)
          .field("ffn_hidden_size", &O::ffn_hidden_size,
                 "width inside the MLP; default: 4 x hidden_size, for gated activations 8/3 of it in steps of 64")
          .alias("n_inner")
          .alias("intermediate_size")
          .range(1, kLargestSize)
          .field("vocab_size", &O::vocab_size, "rows of the embedding")
          .range(1, kLargestSize)
          .field("resize_embeddings", &O::resize_embeddings,
                 "a larger vocabulary than that of the folder of \"from\": {\"vocab_size\": N, \"initial_rows\": "
                 "\"mean\"}; rows that the folder lacks start as the mean of those that it has, or by \"init\" as "
                 "init_method_std says; default: not")
          .field("max_position_embeddings", &O::max_position_embeddings, "longest sequence")
          .alias("n_positions")
          .alias("n_ctx")
          .range(1, kLargestSize)
          .field("normalization", &O::normalization, "default: layernorm")
          .one_of({"layernorm", "rmsnorm"})
          .field("norm_epsilon", &O::norm_epsilon, "added to the variance under the root; default: 1e-5")
          .alias("layer_norm_epsilon")
          .alias("layernorm_epsilon")
          .alias("rms_norm_eps")
          .range(0, 1)
          .field(
              "norm_placement", &O::norm_placement,
              "where a block's norms stand: before attention and MLP, after them (OLMo 2), or both (Gemma 2); default: "
              "before")
          .one_of({"before", "after", "both"})
          .field("norm_gain", &O::norm_gain, "a weight in each norm; default: true")
          .field("norm_bias", &O::norm_bias, "a bias in each norm; default: true, for rmsnorm false")
          .field("norm_offset", &O::norm_offset,
                 "added to the norms' weights, which start as 1 minus it (Gemma: 1); default: 0")
          .field("qk_norm", &O::qk_norm,
                 "an RMS norm of queries and keys before rotary: of each head with one weight (Qwen3), or of all heads "
                 "together (OLMo 2); default: none")
          .one_of({"none", "head", "heads"})
          .field("activation", &O::activation, "of the MLP; the last four are gated; default: gelu_tanh")
          .one_of({"gelu_tanh", "gelu", "silu", "relu", "swiglu", "geglu", "geglu_tanh", "reglu"})
          .field("use_parallel_residual", &O::use_parallel_residual,
                 "attention and MLP both read the block's input (GPT-NeoX); default: false")
          .field("position_embedding_type", &O::position_embedding_type, "default: learned")
          .one_of({"learned", "rope"})
          .field("rotary_base", &O::rotary_base, "slowest wavelength of rope; default: 10000")
          .alias("rope_theta")
          .range(1, 1e12)
          .field("rotary_percent", &O::rotary_percent,
                 "which part of each head rope turns, its first elements; default: 1")
          .alias("partial_rotary_factor")
          .alias("rotary_pct")
          .range(0, 1)
          .field("rope_scaling", &O::rope_scaling,
                 "how rope is stretched, as config.json has it: {rope_type: linear, llama3, yarn or longrope, and what "
                 "this "
                 "type needs}; default: not")
          .field(
              "rotary_local_base", &O::rotary_local_base,
              "rope's base in layers with a window, where it is not stretched; default: as in all layers, of Gemma 3 "
              "10000")
          .alias("rope_local_base_freq")
          .range(1, 1e12)
          .field("rotary_layers", &O::rotary_layers,
                 "1 or 0 for each block: whether rope turns in it (SmolLM3); default: all")
          .range(0, 1)
          .field("sliding_window", &O::sliding_window,
                 "how many keys a query sees, its own position included, in the layers of window_layers; 0: all; "
                 "default: 0")
          .range(0, kLargestSize)
          .field("window_layers", &O::window_layers,
                 "1 or 0 for each block: whether sliding_window holds in it; default: in all")
          .range(0, 1)
          .field("add_bias", &O::add_bias, "biases in all linear layers but those of mixtures; default: true")
          .field("add_qkv_bias", &O::add_qkv_bias,
                 "a bias in the q, k, v layer even without add_bias (Qwen2); default: false")
          .field("add_proj_bias", &O::add_proj_bias,
                 "a bias in the projection behind attention even without add_bias; default: false")
          .field("add_mlp_bias", &O::add_mlp_bias, "biases in the MLP even without add_bias; default: false")
          .field("untie_embeddings_and_output_weights", &O::untie_embeddings_and_output_weights,
                 "an output layer of its own instead of the embedding's matrix; default: false")
          .field("embedding_multiplier", &O::embedding_multiplier,
                 "of the embedding's output (Gemma, Granite); default: 1")
          .field("attention_multiplier", &O::attention_multiplier,
                 "of attention scores; default: 1 / the root of the head dimension")
          .field("residual_multiplier", &O::residual_multiplier,
                 "of what attention and MLP add to the residual stream (Granite); default: 1")
          .field("logits_scaling", &O::logits_scaling, "logits are divided by it (Granite); default: 1")
          .field("attn_logit_softcapping", &O::attn_logit_softcapping,
                 "c of c tanh(s / c), of attention scores s (Gemma 2); 0: none; default: 0")
          .at_least(0)
          .field("final_logit_softcapping", &O::final_logit_softcapping, "the same of logits; default: 0")
          .at_least(0)
          .field("init_method_std", &O::init_method_std,
                 "of initial matrices; output projections get it / sqrt(2 layers); default: 0.02")
          .alias("initializer_range")
          .range(0, 100)
          .field("hidden_dropout", &O::hidden_dropout, "on both branches of a block; default: 0, or the folder's")
          .alias("resid_pdrop")
          .range(0, 1)
          .field("embedding_dropout", &O::embedding_dropout,
                 "after the embedding; default: hidden_dropout, or the folder's")
          .alias("embd_pdrop")
          .range(0, 1)
          .field("attention_dropout", &O::attention_dropout, "on attention probabilities; default: 0, or the folder's")
          .alias("attn_pdrop")
          .range(0, 1));
}

Value facts_of(const Shape& s) {
  Value f = Value::object();
  f.set("num_layers", s.layers), f.set("hidden_size", s.hidden), f.set("num_attention_heads", s.heads);
  f.set("num_query_groups", s.groups), f.set("kv_channels", s.head_dim), f.set("ffn_hidden_size", s.ffn);
  f.set("vocab_size", s.vocab), f.set("max_position_embeddings", s.positions);
  f.set("normalization", s.rms ? "rmsnorm" : "layernorm"), f.set("norm_epsilon", s.norm_epsilon);
  f.set("norm_placement", kPlacements[static_cast<size_t>(s.norms)]);
  f.set("norm_gain", s.norm_gain), f.set("norm_bias", s.any_norm_bias()), f.set("norm_offset", s.norm_offset);
  f.set("qk_norm", qk_norm_name(s)), f.set("activation", s.activation), f.set("use_parallel_residual", s.parallel);
  f.set("position_embedding_type", s.rotary ? "rope" : "learned");
  f.set("rotary_base", s.rotary ? Value(s.scaling.base) : Value()), f.set("rotary_percent", s.rotary_percent);
  f.set("rope_scaling", s.rotary ? scaling_value(s.scaling) : Value());
  f.set("rotary_local_base", s.local_base ? Value(*s.local_base) : Value());
  f.set("rotary_layers", flags_of(s.rotary_layers));
  f.set("sliding_window", s.window), f.set("window_layers", flags_of(s.window_layers));
  f.set("add_qkv_bias", s.qkv_bias), f.set("add_proj_bias", s.proj_bias), f.set("add_mlp_bias", s.mlp_bias);
  f.set("untie_embeddings_and_output_weights", !s.tied);
  f.set("embedding_multiplier", s.embedding_scale), f.set("attention_multiplier", s.score_scale());
  f.set("residual_multiplier", s.residual_scale), f.set("logits_scaling", s.logit_divisor);
  f.set("attn_logit_softcapping", s.attention_softcap), f.set("final_logit_softcapping", s.logit_softcap);
  f.set("init_method_std", s.init_std), f.set("hidden_dropout", s.hidden_dropout);
  f.set("embedding_dropout", s.embedding_dropout), f.set("attention_dropout", s.attention_dropout);
  add_expert_facts(s, f);
  return f;
}

namespace {

// Options say "biases everywhere" or "also there".
Value as_options(const Shape& s) {
  Value facts = facts_of(s);
  facts.set("add_bias", s.all_biases());
  for (const char* one : {"add_qkv_bias", "add_proj_bias", "add_mlp_bias"})
    if (s.all_biases()) facts.set(one, false);
  return facts;
}

}  // namespace

bool is_of_training(const std::string& option) {
  for (const char* one : {"init_method_std", "router_aux_loss_coef", "aux_loss", "router_z_loss_coef",
                          "router_bias_update_rate", "router_forced_balance"})
    if (option == one) return true;
  return option.ends_with("_dropout");
}

void fill_in(Options& o, const Shape& s) { fill_from(o, as_options(s)); }

Shape shape_from_options(const Options& given, const Value& defaults) {
  Options o = given;
  fill_from(o, defaults);
  ShapeProblems missing;
  const std::pair<const char*, const std::optional<int64_t>*> required[] = {
      {"num_layers", &o.num_layers},
      {"hidden_size", &o.hidden_size},
      {"num_attention_heads", &o.num_attention_heads},
      {"vocab_size", &o.vocab_size},
      {"max_position_embeddings", &o.max_position_embeddings}};
  for (const auto& [name, value] : required)
    if (!*value) missing.add(name);
  missing.throw_if_any(o.from
                           ? concat("from names ", *o.from,
                                    ", which has no config.json, so it gives weights and no sizes; these are missing:")
                           : "these options are missing (or give \"from\", a Hugging Face folder):");
  if (o.num_experts.value_or(0) == 0) refuse_without_experts(given);
  return complete_shape(o);
}

Shape shape_from_folder(const Options& o, const Shape& folder, const std::string& config_path) {
  check(folder, config_path + ": a shape that cannot be:");
  ShapeProblems wrong;
  const Value facts = as_options(folder);
  for (const OptionField& field : fields().fields()) {
    const Value said = field.get(&o), *there = facts.find(field.name);
    if (is_of_training(field.name) || is_open(said) || !there || same_fact(said, *there)) continue;
    if (field.name == "rope_scaling" &&
        same_scaling(read_scaling(said, folder.scaling, folder.positions, {}, "rope_scaling"), folder.scaling))
      continue;
    if (field.name == "rotary_base" && !folder.rotary)
      wrong.add("rotary_base is set in the options, the folder has learned positions");
    else if (field.name == "vocab_size" && !o.resize_embeddings.is_null())
      wrong.add("vocab_size is ", said.to_json(), " in the options, and resize_embeddings makes it ", there->to_json());
    else
      wrong.add(field.name, " is ", said.to_json(), " in the options, ", there->to_json(), " in the folder");
  }
  wrong.throw_if_any(concat("options contradict ", config_path, " (leave them out beside \"from\"):"));

  Shape s = folder;
  s.init_std = o.init_method_std.value_or(s.init_std);
  if (o.hidden_dropout) s.hidden_dropout = s.embedding_dropout = *o.hidden_dropout;
  s.embedding_dropout = o.embedding_dropout.value_or(s.embedding_dropout);
  s.attention_dropout = o.attention_dropout.value_or(s.attention_dropout);
  if (s.mixture.experts > 0) take_balance(o, s.mixture);
  return s;
}

}  // namespace drivetrain::gpt
