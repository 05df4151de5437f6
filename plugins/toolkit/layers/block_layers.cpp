#include <drivetrain/toolkit/layers/block_layers.h>

#include <cmath>

namespace drivetrain {

BlockLayerSpecs block_layer_specs(const BlockSpec& s) {
  const InitRule init = InitRule::normal(s.init_std), output_init = InitRule::normal(s.output_init_std);
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const bool gated = s.activation == "swiglu";
  const auto fc_blocks = gated ? std::vector<int64_t>{s.ffn, s.ffn} : std::vector<int64_t>{};
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  BlockLayerSpecs b;
  b.norm1 = {s.name + ".norm1", s.hidden, s.rms, s.norm_epsilon};
  b.qkv = {s.name + ".attn.qkv", s.hidden, q + 2 * kv, Split::columns, s.qkv_bias, {q, kv, kv}, init};
  b.attention = {s.name + ".attn", s.heads, s.kv_heads, s.head_dim, scale, s.attention_dropout, true, 0};
  b.attn_proj = {s.name + ".attn.proj", q, s.hidden, Split::rows, s.bias, {}, output_init};
  b.norm2 = {s.name + ".norm2", s.hidden, s.rms, s.norm_epsilon};
  b.fc = {s.name + ".mlp.fc", s.hidden, gated ? 2 * s.ffn : s.ffn, Split::columns, s.bias, fc_blocks, init};
  b.mlp_proj = {s.name + ".mlp.proj", s.ffn, s.hidden, Split::rows, s.bias, {}, output_init};
  return b;
}

}  // namespace drivetrain
