#include "shape.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/layers/block_layers.h>

#include "block_spec.h"
#include "experts.h"
#include "shape_problems.h"

namespace drivetrain::gpt {
namespace {

void check_sizes(const Shape& s, ShapeProblems& wrong) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"num_layers", s.layers},         {"hidden_size", s.hidden},
      {"num_attention_heads", s.heads}, {"num_query_groups", s.groups},
      {"kv_channels", s.head_dim},      {"ffn_hidden_size", s.ffn},
      {"vocab_size", s.vocab},          {"max_position_embeddings", s.positions}};
  for (const auto& [name, size] : sizes)
    if (size < 1 || size > kLargestSize) wrong.add(name, " is ", size, "; it must be from 1 to ", kLargestSize);
  if (s.layers > kMostLayers && s.layers <= kLargestSize)
    wrong.add("num_layers is ", s.layers, "; it must be from 1 to ", kMostLayers);
  const double width = static_cast<double>(s.hidden), layers = static_cast<double>(s.layers);
  const double heads =
      (2.0 * static_cast<double>(s.heads) + 2.0 * static_cast<double>(s.groups)) * static_cast<double>(s.head_dim);
  const double rows = layers * (heads + 3.0 * static_cast<double>(s.ffn)) + 2.0 * static_cast<double>(s.vocab) +
                      static_cast<double>(s.positions);
  if (width * rows > kMostParameters)
    wrong.add("these sizes make about ", width * rows, " parameters; more than ", kMostParameters,
              " cannot be counted");
  if (s.heads > 0 && s.groups > 0 && s.heads % s.groups != 0)
    wrong.add("num_query_groups ", s.groups, " does not divide num_attention_heads ", s.heads,
              ": every key/value head serves the same number of query heads");
}

void check_rotary(const Shape& s, ShapeProblems& wrong) {
  if (!s.rotary) {
    if (!s.rotary_layers.empty() || s.local_base)
      wrong.add("rotary_layers and rotary_local_base need position_embedding_type rope");
    return;
  }
  const int64_t dim = s.rotary_dim();
  if (s.rotary_percent == 1 && s.head_dim % 2 != 0)
    wrong.add("the head dimension (kv_channels) is ", s.head_dim,
              ", but position_embedding_type rope turns pairs: make it even");
  else if (dim < 2 || dim % 2 != 0)
    wrong.add("rotary_percent ", s.rotary_percent, " of the head dimension (kv_channels) ", s.head_dim, " is ", dim,
              ", but position_embedding_type rope turns pairs: make it even, and at least 2");
  for (const auto* list : {&s.scaling.short_factor, &s.scaling.long_factor})
    if (s.scaling.type == "longrope" && list->size() != size_t(dim / 2))
      wrong.add("rope_scaling has ", list->size(), " factors of longrope, but ", dim / 2, " pairs turn");
}

void check_layers(const Shape& s, const char* name, const std::vector<int64_t>& list, ShapeProblems& wrong) {
  if (!list.empty() && list.size() != size_t(s.layers))
    wrong.add(name, " has ", list.size(), " entries; it needs one for each of num_layers ", s.layers);
  for (const int64_t one : list)
    if (one != 0 && one != 1) return wrong.add(name, " has ", one, "; its entries are 0 or 1");
}

int64_t default_head_dim(const Options& o) {
  const int64_t hidden = *o.hidden_size, heads = *o.num_attention_heads;
  if (heads > 0 && hidden % heads != 0)
    throw fail(ErrorCode::config, "model/gpt: num_attention_heads ", heads, " does not divide hidden_size ", hidden,
               ". Change one of them, or set kv_channels (the head dimension)");
  return heads > 0 ? hidden / heads : 0;
}

// Megatron's rule: 4 h, or for gated activations two thirds of it in steps of 64.
int64_t default_ffn(const Options& o, const Shape& s) {
  // Without a layer that has no experts it is theirs, as families without such layers have it.
  if (o.moe_intermediate_size && o.num_experts.value_or(0) > 0) return *o.moe_intermediate_size;
  const int64_t hidden = s.hidden;
  if (hidden > kLargestSize) return 1;  // refused by `check`
  if (!s.gated()) return 4 * hidden;
  const int64_t ffn = hidden * 8 / 3 / 64 * 64;
  if (ffn == 0)
    throw fail(ErrorCode::config, "model/gpt: ffn_hidden_size has no default for ", s.activation, " with hidden_size ",
               hidden, "; set it");
  return ffn;
}

void read_norms(const Options& o, Shape& s) {
  s.rms = o.normalization.value_or("layernorm") == "rmsnorm";
  s.norm_epsilon = o.norm_epsilon.value_or(s.norm_epsilon);
  s.norm_gain = o.norm_gain.value_or(true), s.norm_offset = o.norm_offset.value_or(0);
  s.norm_bias = o.norm_bias.value_or(!s.rms);
  if (s.rms && s.norm_bias) throw fail(ErrorCode::config, "model/gpt: norm_bias is true, but an rmsnorm has no bias");
  const std::string placement = o.norm_placement.value_or("before"), qk = o.qk_norm.value_or("none");
  s.norms = placement == "both"    ? NormPlacement::both
            : placement == "after" ? NormPlacement::after
                                   : NormPlacement::before;
  if (qk != "none") s.qk_norm = qk == "head" ? NormOver::head : NormOver::heads;
}

void read_rotary(const Options& o, Shape& s) {
  s.rotary = o.position_embedding_type.value_or("learned") == "rope";
  const auto needs_rope = [&](bool is_set, const char* name) {
    if (is_set && !s.rotary)
      throw fail(ErrorCode::config, "model/gpt: ", name,
                 " is set, but position_embedding_type is learned; set it to rope");
  };
  needs_rope(o.rotary_base.has_value(), "rotary_base"), needs_rope(!o.rope_scaling.is_null(), "rope_scaling");
  s.scaling.base = o.rotary_base.value_or(s.scaling.base);
  s.rotary_percent = o.rotary_percent.value_or(1);
  s.rotary_layers = o.rotary_layers, s.local_base = o.rotary_local_base;
  if (o.rope_scaling.is_null()) return;
  const double base = s.scaling.base;
  s.scaling = read_scaling(o.rope_scaling, s.scaling, s.positions, {}, "rope_scaling");
  if (s.scaling.base != base)
    throw fail(ErrorCode::config, "model/gpt: rope_scaling has rope_theta ", s.scaling.base, ", and rotary_base is ",
               base, "; leave rope_theta out");
}

void read_scales(const Options& o, Shape& s) {
  s.embedding_scale = o.embedding_multiplier.value_or(1), s.attention_scale = o.attention_multiplier.value_or(0);
  s.residual_scale = o.residual_multiplier.value_or(1), s.logit_divisor = o.logits_scaling.value_or(1);
  s.attention_softcap = o.attn_logit_softcapping.value_or(0), s.logit_softcap = o.final_logit_softcapping.value_or(0);
}

}  // namespace

bool Shape::gated() const { return is_gated(activation); }

int64_t Shape::rotary_dim() const { return static_cast<int64_t>(static_cast<double>(head_dim) * rotary_percent); }

double Shape::score_scale() const {
  return attention_scale > 0 ? attention_scale : 1 / std::sqrt(static_cast<double>(head_dim));
}

bool Shape::any_dense() const {
  return mixture.experts == 0 || std::find(mixture.layers.begin(), mixture.layers.end(), 0) != mixture.layers.end();
}

int64_t Shape::mixtures(int64_t before) const {
  int64_t count = 0;
  for (int64_t i = 0; i < before; ++i) count += is_mixture(i);
  return count;
}

int64_t Shape::expert_parameters() const { return hidden * (fc_width(mixture.ffn) + mixture.ffn); }

int64_t Shape::matrix_parameters(int64_t layer) const {
  const int64_t attention = hidden * qkv_width() + heads * head_dim * hidden;
  if (!is_mixture(layer)) return attention + hidden * (fc_width() + ffn);
  const ExpertShape& m = mixture;
  const int64_t shared = fc_width(m.shared_ffn) + m.shared_ffn + (m.shared_gate ? 1 : 0);
  return attention + m.chosen * expert_parameters() + hidden * (m.experts + shared);
}

int64_t Shape::matrix_parameters() const {
  int64_t sum = hidden * vocab;
  for (int64_t i = 0; i < layers; ++i) sum += matrix_parameters(i);
  return sum;
}

int64_t Shape::parameters() const {
  int64_t blocks = 0;
  std::optional<int64_t> of_kind[2];  // without and with experts
  for (int64_t i = 0; i < layers; ++i) {
    std::optional<int64_t>& block = of_kind[is_mixture(i)];
    if (!block) {
      block = 0;
      for (const LayerTensor& t : block_tensors(*this, i)) *block += t.rows * t.columns;
    }
    blocks += *block;
  }
  const int64_t embeddings = (tied ? 0 : vocab * hidden) + (rotary ? 0 : positions * hidden);
  return blocks + hidden * vocab + embeddings + ((norm_gain ? 1 : 0) + (any_norm_bias() ? 1 : 0)) * hidden;
}

void check(const Shape& s, const std::string& where) {
  ShapeProblems wrong;
  check_sizes(s, wrong);
  check_rotary(s, wrong);
  check_layers(s, "rotary_layers", s.rotary_layers, wrong);
  check_layers(s, "window_layers", s.window_layers, wrong);
  check_layers(s, "moe_layers", s.mixture.layers, wrong);
  check_experts(s, wrong);
  if (!s.window_layers.empty() && s.window < 1) wrong.add("window_layers need sliding_window, which is ", s.window);
  if (s.parallel && s.norms != NormPlacement::before)
    wrong.add("use_parallel_residual needs norm_placement before: both branches read the block's input");
  wrong.throw_if_any(where);
}

Shape complete_shape(const Options& o) {
  Shape s;
  s.layers = *o.num_layers, s.hidden = *o.hidden_size, s.heads = *o.num_attention_heads;
  s.vocab = *o.vocab_size, s.positions = *o.max_position_embeddings;
  s.groups = o.num_query_groups.value_or(s.heads);
  s.head_dim = o.kv_channels ? *o.kv_channels : default_head_dim(o);
  s.activation = o.activation.value_or(s.activation);
  s.ffn = o.ffn_hidden_size ? *o.ffn_hidden_size : default_ffn(o, s);
  read_norms(o, s), read_rotary(o, s), read_scales(o, s);
  s.parallel = o.use_parallel_residual.value_or(false);
  s.window = o.sliding_window.value_or(0), s.window_layers = o.window_layers;
  if (s.window > 0 && s.window_layers.empty())
    s.window_layers.assign(size_t(std::clamp<int64_t>(s.layers, 0, kMostLayers)), 1);
  const bool all = o.add_bias.value_or(true);
  s.qkv_bias = all || o.add_qkv_bias.value_or(false), s.proj_bias = all || o.add_proj_bias.value_or(false);
  s.mlp_bias = all || o.add_mlp_bias.value_or(false);
  complete_experts(o, s);
  if (!s.any_dense()) {
    if (o.add_mlp_bias.value_or(false))
      throw fail(ErrorCode::config,
                 "model/gpt: add_mlp_bias is true, but every layer has experts, which have no biases");
    s.mlp_bias = false;
  }
  s.tied = !o.untie_embeddings_and_output_weights.value_or(false);
  s.init_std = o.init_method_std.value_or(s.init_std);
  s.hidden_dropout = o.hidden_dropout.value_or(0);
  s.embedding_dropout = o.embedding_dropout.value_or(s.hidden_dropout);
  s.attention_dropout = o.attention_dropout.value_or(0);
  check(s, "options that do not fit each other:");
  return s;
}

}  // namespace drivetrain::gpt
