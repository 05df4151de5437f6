#include "block_layers.h"

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/block_layers.h>
#include <drivetrain/toolkit/ops/ops.h>

namespace drivetrain::fused_block {
namespace {

// What is wrong with the shape itself; empty if nothing.
std::string shape_problem(const BlockSpec& s) {
  if (s.mixture) return "its MLP is a mixture of experts";
  try {
    ops::activation_of(s.activation);
  } catch (const Error& e) {
    return e.what();
  }
  if (s.heads < 1 || s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    return concat(s.kv_heads, " key/value heads do not divide ", s.heads, " heads");
  const auto pairs = static_cast<int64_t>(s.rotary_frequencies.size());
  if (s.rotary && (pairs < 1 || 2 * pairs > s.head_dim))
    return concat("there are ", pairs, " rotary frequencies for a head size of ", s.head_dim);
  return {};
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

  // The block computes norms itself, so that there is only their parameters to go by: whole ones, by their names, and
  // no others.
  NormParams norm(const std::optional<NormSpec>& spec) {
    NormParams norm;
    if (!spec) return norm;
    const std::vector<ParamPtr> all = layers_.norm(*spec)->params();
    size_t known = 0;
    const auto take = [&](bool wanted, const char* name, ParamPtr& param) {
      if (!wanted || known == all.size() || all[known]->name != spec->name + name) return !wanted;
      param = all[known++];
      return is_whole(*param, spec->dim);
    };
    norm.here = take(spec->gain, ".weight", norm.weight) && take(spec->bias && !spec->rms, ".bias", norm.bias) &&
                known == all.size();
    if (!norm.here) refuse(spec->name);
    return norm;
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
    for (const ParamPtr& param : {norm.weight, norm.bias})
      if (param) all.push_back(param);
  };
  add_norm(norm1), add(qkv->params()), add_norm(q_norm), add_norm(k_norm), add(attn_proj->params());
  add_norm(attn_norm), add_norm(norm2), add(fc->params()), add(mlp_proj->params()), add_norm(mlp_norm);
  return all;
}

std::optional<BlockLayers> make_block_layers(const BlockSpec& s, LayerFactory& layers, std::string& reason) {
  reason = shape_problem(s);
  if (!reason.empty()) return {};
  const BlockLayerSpecs specs = block_layer_specs(s);
  Collector collect(layers, reason);
  BlockLayers b;
  b.norm1 = collect.norm(specs.norm1);
  b.qkv = collect.linear(specs.qkv);
  b.q_norm = collect.norm(specs.q_norm);
  b.k_norm = collect.norm(specs.k_norm);
  b.attention = collect.attention(specs.attention);
  b.attn_proj = collect.linear(specs.attn_proj);
  b.attn_norm = collect.norm(specs.attn_norm);
  b.norm2 = collect.norm(specs.norm2);
  b.fc = collect.linear(specs.fc);
  b.mlp_proj = collect.linear(specs.mlp_proj);
  b.mlp_norm = collect.norm(specs.mlp_norm);
  if (!reason.empty()) return {};
  return b;
}

}  // namespace drivetrain::fused_block
