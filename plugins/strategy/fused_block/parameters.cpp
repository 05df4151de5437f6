#include "parameters.h"

#include <drivetrain/error.h>
#include <drivetrain/ops.h>

namespace drivetrain::fused_block {
namespace {

// What is wrong with the shape itself; empty if nothing.
std::string shape_problem(const BlockSpec& s) {
  try {
    ops::activation_of(s.activation);
  } catch (const Error& e) {
    return e.what();
  }
  if (s.heads < 1 || s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    return concat(s.kv_heads, " key/value heads do not divide ", s.heads, " heads");
  const auto pairs = static_cast<int64_t>(s.rotary_frequencies.size());
  if (s.rotary && 2 * pairs != s.head_dim)
    return concat("there are ", pairs, " rotary frequencies for a head size of ", s.head_dim);
  return {};
}

// Layers that another plugin decorated may compute something else: only a whole matrix and a whole bias are known here.
bool is_plain(const Param& param, const std::string& name, const std::vector<int64_t>& shape) {
  return param.name == name && param.layout == Layout::whole(shape);
}

class Collector {
 public:
  Collector(LayerFactory& layers, std::string& reason) : layers_(layers), reason_(reason) {}

  WeightAndBias linear(LinearSpec spec) {
    return take(*layers_.linear(spec), spec.name, {spec.out, spec.in}, spec.out, spec.bias);
  }
  WeightAndBias norm(const NormSpec& spec) {
    return take(*layers_.norm(spec), spec.name, {spec.dim}, spec.dim, !spec.rms);
  }

 private:
  WeightAndBias take(const Layer& layer, const std::string& name, const std::vector<int64_t>& shape, int64_t out,
                     bool bias) {
    const std::vector<ParamPtr> all = layer.params();
    const bool plain = all.size() == (bias ? 2 : 1) && is_plain(*all[0], name + ".weight", shape) &&
                       (!bias || is_plain(*all[1], name + ".bias", {out}));
    if (!plain) {
      if (reason_.empty())
        reason_ = concat(name.substr(name.find('.', name.find('.') + 1) + 1), " is not a plain layer");
      return {};
    }
    return {all[0], bias ? all[1] : nullptr};
  }

  LayerFactory& layers_;
  std::string& reason_;
};

}  // namespace

std::vector<ParamPtr> BlockParams::in_order() const {
  std::vector<ParamPtr> all;
  for (const WeightAndBias* part : {&norm1, &qkv, &attn_proj, &norm2, &fc, &mlp_proj}) {
    all.push_back(part->weight);
    if (part->bias) all.push_back(part->bias);
  }
  return all;
}

std::optional<BlockParams> make_parameters(const BlockSpec& s, LayerFactory& layers, std::string& reason) {
  reason = shape_problem(s);
  if (!reason.empty()) return {};
  const InitRule init = InitRule::normal(s.init_std), output_init = InitRule::normal(s.output_init_std);
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const bool gated = s.activation == "swiglu";
  const auto fc_blocks = gated ? std::vector<int64_t>{s.ffn, s.ffn} : std::vector<int64_t>{};
  Collector collect(layers, reason);
  BlockParams p;
  p.norm1 = collect.norm({s.name + ".norm1", s.hidden, s.rms, s.norm_epsilon});
  p.qkv = collect.linear({s.name + ".attn.qkv", s.hidden, q + 2 * kv, Split::columns, s.qkv_bias, {q, kv, kv}, init});
  p.attn_proj = collect.linear({s.name + ".attn.proj", q, s.hidden, Split::rows, s.bias, {}, output_init});
  p.norm2 = collect.norm({s.name + ".norm2", s.hidden, s.rms, s.norm_epsilon});
  p.fc = collect.linear(
      {s.name + ".mlp.fc", s.hidden, gated ? 2 * s.ffn : s.ffn, Split::columns, s.bias, fc_blocks, init});
  p.mlp_proj = collect.linear({s.name + ".mlp.proj", s.ffn, s.hidden, Split::rows, s.bias, {}, output_init});
  if (!reason.empty()) return {};
  return p;
}

}  // namespace drivetrain::fused_block
