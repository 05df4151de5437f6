#include <drivetrain/toolkit/layers/block_layers.h>

#include <cmath>

namespace drivetrain {
namespace {

NormSpec block_norm(const BlockSpec& s, const char* name) {
  NormSpec norm{s.name + name, s.hidden, s.rms, s.norm_epsilon};
  norm.gain = s.norm_gain, norm.bias = s.norm_bias && !s.rms, norm.offset = s.norm_offset;
  return norm;
}

NormSpec head_norm(const BlockSpec& s, const char* name, int64_t heads) {
  const bool each = s.qk_norm == NormOver::head;
  NormSpec norm{s.name + name, each ? s.head_dim : heads * s.head_dim, true, s.norm_epsilon};
  norm.bias = false, norm.offset = s.norm_offset, norm.over = *s.qk_norm;
  norm.heads = each ? 1 : heads;
  return norm;
}

}  // namespace

BlockLayerSpecs block_layer_specs(const BlockSpec& s) {
  const InitRule init = InitRule::normal(s.init_std), output_init = InitRule::normal(s.output_init_std);
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const bool gated = is_gated(s.activation);
  const auto fc_blocks = gated ? std::vector<int64_t>{s.ffn, s.ffn} : std::vector<int64_t>{};
  const double scale = s.attention_scale > 0 ? s.attention_scale : 1 / std::sqrt(static_cast<double>(s.head_dim));
  BlockLayerSpecs b;
  if (s.norms != NormPlacement::after) b.norm1 = block_norm(s, ".norm1"), b.norm2 = block_norm(s, ".norm2");
  if (s.norms != NormPlacement::before)
    b.attn_norm = block_norm(s, ".attn_norm"), b.mlp_norm = block_norm(s, ".mlp_norm");
  b.qkv = {s.name + ".attn.qkv", s.hidden, q + 2 * kv, Split::columns, s.qkv_bias, {q, kv, kv}, init};
  if (s.qk_norm) b.q_norm = head_norm(s, ".attn.q_norm", s.heads), b.k_norm = head_norm(s, ".attn.k_norm", s.kv_heads);
  b.attention = {s.name + ".attn", s.heads, s.kv_heads, s.head_dim, scale, s.attention_dropout, true, s.window};
  b.attention.softcap = s.attention_softcap;
  b.attn_proj = {s.name + ".attn.proj", q, s.hidden, Split::rows, s.proj_bias, {}, output_init};
  b.fc = {s.name + ".mlp.fc", s.hidden, gated ? 2 * s.ffn : s.ffn, Split::columns, s.bias, fc_blocks, init};
  b.mlp_proj = {s.name + ".mlp.proj", s.ffn, s.hidden, Split::rows, s.bias, {}, output_init};
  if (!s.mixture || s.mixture->shared_ffn == 0) return b;
  const int64_t ffn = s.mixture->shared_ffn;
  const auto blocks = gated ? std::vector<int64_t>{ffn, ffn} : std::vector<int64_t>{};
  const int64_t columns = gated ? 2 * ffn : ffn;
  b.shared_fc = {s.name + ".mlp.shared.fc", s.hidden, columns, Split::columns, false, blocks, init};
  b.shared_proj = {s.name + ".mlp.shared.proj", ffn, s.hidden, Split::rows, false, {}, output_init};
  if (s.mixture->shared_gate) b.shared_gate = {s.name + ".mlp.shared_gate", s.hidden, 1, Split::none, false, {}, init};
  return b;
}

}  // namespace drivetrain
