#include "block_spec.h"

#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/block_layers.h>

namespace drivetrain::gpt {
namespace {

double output_std(const Shape& s) { return s.init_std / std::sqrt(2.0 * static_cast<double>(s.layers)); }

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
  const BlockLayerSpecs b = block_layer_specs(without_angles(s, index));
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
  norm(b.norm2), linear(b.fc), linear(b.mlp_proj), norm(b.mlp_norm);
  return list;
}

NormSpec final_norm_spec(const Shape& s) {
  NormSpec norm{"final_norm", s.hidden, s.rms, s.norm_epsilon};
  norm.gain = s.norm_gain, norm.bias = s.any_norm_bias(), norm.offset = s.norm_offset;
  return norm;
}

}  // namespace drivetrain::gpt
