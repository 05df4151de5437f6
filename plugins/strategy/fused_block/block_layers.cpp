#include "block_layers.h"

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/block_layers.h>
#include <drivetrain/toolkit/ops/ops.h>

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

// Weight and perhaps bias by their names, and nothing else: a norm that the block can compute itself.
bool known_params(const std::vector<ParamPtr>& all, const std::string& layer, bool bias) {
  return all.size() == (bias ? 2 : 1) && all[0]->name == layer + ".weight" &&
         (!bias || all[1]->name == layer + ".bias");
}

// Every rank has all of it; its gradient may still be a sum over ranks that see different positions.
bool is_whole(const Param& param, int64_t dim) {
  Layout whole = Layout::whole({dim});
  whole.partial_over = param.layout.partial_over;
  return param.layout == whole;
}

class Collector {
 public:
  Collector(LayerFactory& layers, std::string& reason) : layers_(layers), reason_(reason) {}

  // Its halves are called, whatever they compute and with which parameters.
  std::shared_ptr<Linear> linear(const LinearSpec& spec) { return layers_.linear(spec); }

  // The block computes norms itself, so that there is only their parameters to go by.
  NormParams norm(const NormSpec& spec) {
    const bool bias = !spec.rms;
    const std::vector<ParamPtr> all = layers_.norm(spec)->params();
    const bool plain =
        known_params(all, spec.name, bias) && is_whole(*all[0], spec.dim) && (!bias || is_whole(*all[1], spec.dim));
    if (!plain) return refuse(spec.name), NormParams{};
    return {all[0], bias ? all[1] : nullptr};
  }

  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) {
    auto layer = layers_.attention(spec);
    if (!layer->params().empty()) refuse(spec.name);
    return layer;
  }

 private:
  void refuse(const std::string& name) {
    if (reason_.empty()) reason_ = concat(name.substr(name.find('.', name.find('.') + 1) + 1), " is not a plain layer");
  }

  LayerFactory& layers_;
  std::string& reason_;
};

}  // namespace

std::vector<ParamPtr> BlockLayers::params_in_order() const {
  std::vector<ParamPtr> all;
  const auto add = [&](const std::vector<ParamPtr>& some) { all.insert(all.end(), some.begin(), some.end()); };
  const auto add_norm = [&](const NormParams& norm) {
    all.push_back(norm.weight);
    if (norm.bias) all.push_back(norm.bias);
  };
  add_norm(norm1), add(qkv->params()), add(attn_proj->params());
  add_norm(norm2), add(fc->params()), add(mlp_proj->params());
  return all;
}

std::optional<BlockLayers> make_block_layers(const BlockSpec& s, LayerFactory& layers, std::string& reason) {
  reason = shape_problem(s);
  if (!reason.empty()) return {};
  const BlockLayerSpecs specs = block_layer_specs(s);
  Collector collect(layers, reason);
  BlockLayers b;
  b.norm1 = collect.norm(*specs.norm1);
  b.qkv = collect.linear(specs.qkv);
  b.attention = collect.attention(specs.attention);
  b.attn_proj = collect.linear(specs.attn_proj);
  b.norm2 = collect.norm(*specs.norm2);
  b.fc = collect.linear(specs.fc);
  b.mlp_proj = collect.linear(specs.mlp_proj);
  if (!reason.empty()) return {};
  return b;
}

}  // namespace drivetrain::fused_block
