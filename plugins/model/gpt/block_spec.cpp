#include "block_spec.h"

#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/block_layers.h>

namespace drivetrain::gpt {
namespace {

double output_std(const Shape& s) { return s.init_std / std::sqrt(2.0 * static_cast<double>(s.layers)); }

MixtureSpec mixture_spec(const Shape& s, int64_t index, const BlockSpec& block) {
  const ExpertShape& m = s.mixture;
  MixtureSpec spec;
  spec.router.name = block.name + ".mlp.router";
  spec.router.hidden = s.hidden, spec.router.experts = m.experts, spec.router.chosen = m.chosen;
  spec.router.scores = m.scores, spec.router.renormalize = m.renormalize, spec.router.scale = m.scale;
  spec.router.groups = m.groups, spec.router.chosen_groups = m.chosen_groups;
  spec.router.balance = m.balance_weight > 0 ? m.balance : BalanceLoss::none;
  spec.router.balance_weight = m.balance_weight, spec.router.z_weight = m.z_weight;
  spec.router.bias_update_rate = m.bias_update_rate, spec.router.forced = m.forced;
  spec.router.index = s.mixtures(index), spec.router.layers = s.mixtures(s.layers);
  spec.router.init = InitRule::normal(block.init_std);
  spec.experts = {block.name + ".mlp.experts", m.experts, s.hidden, m.ffn, s.activation};
  spec.experts.init = spec.router.init, spec.experts.output_init = InitRule::normal(block.output_init_std);
  spec.shared_ffn = m.shared_ffn, spec.shared_gate = m.shared_gate;
  return spec;
}

BlockSpec without_angles(const Shape& s, int64_t index) {
  BlockSpec spec;
  spec.name = concat("block.", index);
  spec.hidden = s.hidden, spec.ffn = s.ffn, spec.heads = s.heads, spec.kv_heads = s.groups, spec.head_dim = s.head_dim;
  spec.rms = s.rms, spec.bias = s.mlp_bias, spec.qkv_bias = s.qkv_bias, spec.proj_bias = s.proj_bias;
  spec.rotary = s.turns(index), spec.activation = s.activation;
  spec.norm_epsilon = s.norm_epsilon, spec.norm_gain = s.norm_gain, spec.norm_bias = s.any_norm_bias();
  spec.norm_offset = s.norm_offset, spec.norms = s.norms, spec.qk_norm = s.qk_norm;
  spec.parallel = s.parallel, spec.residual_scale = s.residual_scale;
  spec.attention_scale = s.attention_scale, spec.attention_softcap = s.attention_softcap;
  spec.window = s.window_of(index);
  spec.hidden_dropout = s.hidden_dropout, spec.attention_dropout = s.attention_dropout;
  spec.init_std = s.init_std, spec.output_init_std = output_std(s);
  if (s.is_mixture(index)) spec.mixture = mixture_spec(s, index, spec);
  return spec;
}

}  // namespace

BlockSpec block_spec(const Shape& s, int64_t index, int64_t length) {
  BlockSpec spec = without_angles(s, index);
  if (!spec.rotary) return spec;
  RotaryAngles angles = rotary_angles(s.scaling_of(index), s.rotary_dim(), length);
  spec.rotary_frequencies = std::move(angles.frequencies), spec.rotary_scale = angles.scale;
  return spec;
}

std::vector<LayerTensor> block_tensors(const Shape& s, int64_t index) {
  const BlockSpec block = without_angles(s, index);
  const BlockLayerSpecs b = block_layer_specs(block);
  std::vector<LayerTensor> list;
  const auto norm = [&](const std::optional<NormSpec>& spec) {
    if (spec && spec->gain) list.push_back({spec->name + ".weight", spec->dim});
    if (spec && spec->bias && !spec->rms) list.push_back({spec->name + ".bias", spec->dim});
  };
  const auto linear = [&](const LinearSpec& spec) {
    list.push_back({spec.name + ".weight", spec.out, spec.in});
    if (spec.bias) list.push_back({spec.name + ".bias", spec.out});
  };
  norm(b.norm1), linear(b.qkv), norm(b.q_norm), norm(b.k_norm), linear(b.attn_proj), norm(b.attn_norm);
  norm(b.norm2);
  if (block.mixture) {
    const ExpertsSpec& experts = block.mixture->experts;
    list.push_back({block.mixture->router.name + ".weight", experts.experts, s.hidden});
    list.push_back({experts.name + ".fc.weight", experts.experts * s.fc_width(experts.ffn), s.hidden});
    list.push_back({experts.name + ".proj.weight", experts.experts * s.hidden, experts.ffn});
    for (const auto& shared : {b.shared_fc, b.shared_proj, b.shared_gate})
      if (shared) linear(*shared);
  } else {
    linear(b.fc), linear(b.mlp_proj);
  }
  norm(b.mlp_norm);
  return list;
}

NormSpec final_norm_spec(const Shape& s) {
  NormSpec norm{"final_norm", s.hidden, s.rms, s.norm_epsilon};
  norm.gain = s.norm_gain, norm.bias = s.any_norm_bias(), norm.offset = s.norm_offset;
  return norm;
}

}  // namespace drivetrain::gpt
