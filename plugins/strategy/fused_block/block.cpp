#include "block.h"

#include <ATen/core/grad_mode.h>

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/weight_work.h>

namespace drivetrain::fused_block {

// What backward reads. A tensor that the recompute policy does not keep is undefined and computed again from those
// before it.
struct Activations {
  bool pair = false;  // x came as {residual, delta}
  double dropout = 0;
  RandomKey key1, key2;  // of both hidden dropouts
  ops::RotaryTable table;
  AttentionArgs attention_args;
  ops::Normed norm1, norm2;  // sums [B, S, D] always; y, if kept: what the layer behind wants for its backward
  ops::Heads heads;          // kept without the attention's state
  AttentionState attention;
  at::Tensor attended;  // what attn_proj kept in place of the attention's output; else undefined
  at::Tensor fc, act;   // [B, S, F]; fc before its bias; act, if kept: what mlp_proj wants for its backward
};

Kept::Kept(const KeepOfRegion& keep, bool recording, const BlockOptions& options) {
  if (!recording) return;
  const Keep core = keep("attn.core"), mlp = keep("mlp.act");
  by_layers = keep("norm") == Keep::all;
  norms = by_layers && !options.recompute_cheap;
  attention = core == Keep::all, heads = core != Keep::nothing;
  act = mlp == Keep::all && !options.recompute_cheap, fc = mlp != Keep::nothing;
}

namespace {

constexpr Linear::Options kWhole{.add_bias = true, .wants_dx = true};
constexpr Linear::Options kBare{.add_bias = false, .wants_dx = true};  // the bias goes with the next operation

// Where nothing is to be turned, a GPU's product adds the bias itself, and q, k and v are views of its result.
Linear::Options qkv_options(const at::Tensor& x, const ops::RotaryTable& table) {
  return x.is_cpu() || table.cos.defined() ? kBare : kWhole;
}

at::Tensor value(const ParamPtr& param) { return param ? param->tensor : at::Tensor(); }

// Whether a layer's backward may read its input as the layer kept it. Not where x is to be the input of another
// forward.
enum class Replace { no, yes };

// layer(x). With Replace::yes x becomes what the layer keeps for its backward, if that is something else;
// `replaced` tells.
at::Tensor apply(const Linear& layer, at::Tensor& x, const Linear::Options& options, Replace replace,
                 bool* replaced = nullptr) {
  at::Tensor kept;
  const at::Tensor y = layer.apply(x, options, replace == Replace::yes ? &kept : nullptr);
  if (replaced) *replaced = kept.defined();
  if (kept.defined()) x = std::move(kept);
  return y;
}

Replace replace_if(bool yes) { return yes ? Replace::yes : Replace::no; }

// Angles for the positions of one row, or of each.
bool fits(const at::Tensor& cos, const at::Tensor& qkv) {
  return !cos.defined() || cos.size(0) == qkv.size(1) || cos.size(0) == qkv.size(0) * qkv.size(1);
}

}  // namespace

Block::Block(BlockSpec spec, BlockLayers layers, std::shared_ptr<Attention> attention,
             std::shared_ptr<ops::RotaryPositions> positions, const BlockOptions& options)
    : Unit(spec.name),
      spec_(std::move(spec)),
      layers_(std::move(layers)),
      params_(layers_.params_in_order()),
      attention_(std::move(attention)),
      positions_(std::move(positions)),
      options_(options),
      norm_args_{spec_.norm_epsilon, spec_.rms},
      activation_(ops::activation_of(spec_.activation)) {}

// Both sums on the residual stream; queries, keys, values and attention's output; the first product of the MLP. The
// outputs of norms and of the activation function are computed again in backward anyway, unless the options say
// otherwise. What a linear layer keeps of a norm's output in their place comes from other ranks, and frees as much.
std::optional<UnitKeeps> Block::keeps() const {
  const auto D = static_cast<double>(spec_.hidden), F = static_cast<double>(spec_.ffn);
  const auto queries = static_cast<double>(spec_.heads * spec_.head_dim),
             keys = static_cast<double>(spec_.kv_heads * spec_.head_dim);
  const double fc = spec_.activation == "swiglu" ? 2 * F : F;
  const bool keeps_norms = !options_.recompute_cheap, keeps_act = !options_.recompute_cheap;
  const double by_layers = D * static_cast<double>(layers_.qkv->keeps_input() + layers_.fc->keeps_input());
  UnitKeeps keeps;
  keeps.all = {2 * D + (keeps_norms ? 2 * D : 0), 2 * (queries + keys) + fc + (keeps_act ? F : 0)};
  keeps.inputs = {D, 0};  // the sum, as the runtime holds it
  keeps.regions = {
      {"norm", {keeps_norms ? 2 * D : by_layers, 0}}, {"attn.core", {0, queries}}, {"mlp.act", {0, keeps_act ? F : 0}}};
  return keeps;
}

// --- forward

Tensors Block::forward(const Tensors& x, StepContext& ctx, Saved& saved) {
  const bool recording = at::GradMode::is_enabled();
  const at::AutoGradMode off(false);
  const Kept keep([&](std::string_view region) { return ctx.keep(region); }, recording, options_);
  const NormParams &n1 = layers_.norm1, &n2 = layers_.norm2;
  Activations a = begin(x, ctx);
  a.norm1 = ops::norm(x[0], a.pair ? x[1] : at::Tensor(), value(n1.weight), value(n1.bias), norm_args_);
  const at::Tensor branch = attention_forward(a, keep);
  a.norm2 = ops::norm(a.norm1.sum, branch, value(n2.weight), value(n2.bias), norm_args_);
  const Tensors out = {a.norm2.sum, mlp_forward(a, keep)};
  if (recording) saved.extra = std::move(a);
  return out;
}

Activations Block::begin(const Tensors& x, StepContext& ctx) const {
  Activations a;
  a.pair = x.size() == 2;
  a.dropout = ctx.mode() == Mode::train ? spec_.hidden_dropout : 0;
  if (a.dropout > 0) a.key1 = ctx.random(name() + ".dropout1"), a.key2 = ctx.random(name() + ".dropout2");
  if (positions_) a.table = positions_->table(ctx, x[0]);
  a.attention_args = layers_.attention->args(ctx);
  return a;
}

// qkv [B, S, (H + 2 G) C], before its bias unless the product adds it, with this rank's share of the heads.
ops::Heads Block::heads_of(const at::Tensor& qkv, const Activations& a) const {
  const int64_t width = (spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim, share = width / qkv.size(2);
  const at::Tensor& cos = a.table.cos;
  if (share * qkv.size(2) != width || spec_.kv_heads % share != 0 || !fits(cos, qkv))
    throw fail(ErrorCode::internal, "block ", name(), ": q, k and v of shape ", qkv.sizes(), " are no share of ",
               spec_.heads, " heads and ", spec_.kv_heads, " key/value heads of size ", spec_.head_dim,
               ", or not for the ", cos.defined() ? cos.size(0) : qkv.size(1), " positions at hand");
  const at::Tensor bias = qkv_options(qkv, a.table).add_bias ? at::Tensor() : value(layers_.qkv->bias());
  return ops::split_heads(qkv, bias, a.table, spec_.heads / share, spec_.kv_heads / share);
}

// What is added to the residual stream, [B, S, D].
at::Tensor Block::attention_forward(Activations& a, const Kept& keep) const {
  // What is to be multiplied again must stay as it is.
  const Replace replace = replace_if(keep.by_layers && (keep.heads || keep.attention));
  bool replaced = false;
  a.heads = heads_of(apply(*layers_.qkv, a.norm1.y, qkv_options(a.norm1.y, a.table), replace, &replaced), a);
  if (!keep.norms && !replaced) a.norm1.y.reset();
  a.attention = attention_->forward(a.heads.q, a.heads.k, a.heads.v, a.attention_args);
  const at::Tensor attended = a.attention.out.flatten(2);
  if (!keep.attention) a.attention = {};
  if (keep.attention || !keep.heads) a.heads = {};
  const at::Tensor branch = layers_.attn_proj->apply(attended, kWhole, keep.attention ? &a.attended : nullptr);
  return dropout(branch, a.dropout, a.key1);
}

at::Tensor Block::mlp_forward(Activations& a, const Kept& keep) const {
  bool replaced = false;
  a.fc = apply(*layers_.fc, a.norm2.y, kBare, replace_if(keep.by_layers && keep.fc), &replaced);
  if (!keep.norms && !replaced) a.norm2.y.reset();
  a.act = ops::activation(activation_, a.fc, value(layers_.fc->bias()));
  if (!keep.fc) a.fc.reset();
  const at::Tensor delta = apply(*layers_.mlp_proj, a.act, kWhole, replace_if(keep.act));
  if (!keep.act) a.act.reset();
  return dropout(delta, a.dropout, a.key2);
}

// --- backward

Tensors Block::backward(const Tensors& dy, StepContext& ctx, Saved& saved) {
  const at::AutoGradMode off(false);
  auto* a = std::any_cast<Activations>(&saved.extra);
  if (!a) throw fail(ErrorCode::internal, "block ", name(), " goes backward without a forward that was recorded");
  if (dy.size() != 2 || !dy[0].defined() || !dy[1].defined())
    throw fail(ErrorCode::internal, "block ", name(), " wants the gradients of residual and delta, got ", dy.size());
  WeightWork work(ctx.visit().part == Part::input ? &saved.weight_work : nullptr);
  const at::Tensor ds2 = mlp_backward(dy, *a, work);
  const at::Tensor dx = attention_backward(ds2, *a, work);
  const bool pair = a->pair;
  saved.extra.reset();
  return pair ? Tensors{dx, dx} : Tensors{dx};
}

void Block::restore_norm(ops::Normed& norm, const NormParams& p) const {
  if (!norm.y.defined()) norm.y = ops::norm_again(norm, value(p.weight), value(p.bias), norm_args_);
}

void Block::restore_mlp(Activations& a) const {
  if (!a.fc.defined()) {
    restore_norm(a.norm2, layers_.norm2);
    a.fc = apply(*layers_.fc, a.norm2.y, kBare, Replace::yes);
  }
  if (!a.act.defined()) a.act = ops::activation(activation_, a.fc, value(layers_.fc->bias()));
}

void Block::restore_attention(Activations& a) const {
  if (a.attention.out.defined()) return;
  if (!a.heads.q.defined()) {
    restore_norm(a.norm1, layers_.norm1);
    a.heads = heads_of(apply(*layers_.qkv, a.norm1.y, qkv_options(a.norm1.y, a.table), Replace::yes), a);
  }
  a.attention = attention_->forward(a.heads.q, a.heads.k, a.heads.v, a.attention_args);
  a.heads = {};
}

// dy of {s2, delta} -> gradient of s2, which is also that of s1 and of the attention's branch.
at::Tensor Block::mlp_backward(const Tensors& dy, Activations& a, WeightWork& work) const {
  restore_mlp(a);
  at::Tensor dfc;
  {
    // Dropout is its own backward: the mask is drawn again from the key.
    const at::Tensor ddelta = dropout(dy[1].contiguous(), a.dropout, a.key2);
    const at::Tensor dact = layers_.mlp_proj->apply_backward(ddelta, a.act, kWhole, work);
    a.act.reset();
    dfc = ops::activation_backward(activation_, a.fc, dact, layers_.fc->bias().get());
    a.fc.reset();
  }
  const NormParams& n2 = layers_.norm2;
  restore_norm(a.norm2, n2);
  const at::Tensor dy2 = layers_.fc->apply_backward(dfc, a.norm2.y, kBare, work);
  a.norm2.y.reset(), dfc.reset();
  const at::Tensor ds2 = ops::norm_backward(dy2, dy[0], a.norm2, *n2.weight, n2.bias.get(), norm_args_);
  a.norm2 = {};
  return ds2;
}

// Gradient of s2 -> gradient of x.
at::Tensor Block::attention_backward(const at::Tensor& ds2, Activations& a, WeightWork& work) const {
  restore_attention(a);
  at::Tensor dqkv;
  {
    const at::Tensor dbranch = dropout(ds2, a.dropout, a.key1), &out = a.attention.out;
    if (!a.attended.defined()) a.attended = out.flatten(2);
    const at::Tensor dout = layers_.attn_proj->apply_backward(dbranch, a.attended, kWhole, work).reshape(out.sizes());
    a.attended.reset();
    const Tensors d = attention_->backward(dout, a.attention, a.attention_args);
    a.attention = {};
    dqkv = ops::split_heads_backward({d[0], d[1], d[2]}, a.table, layers_.qkv->bias().get());
  }
  const NormParams& n1 = layers_.norm1;
  restore_norm(a.norm1, n1);
  const at::Tensor dy1 = layers_.qkv->apply_backward(dqkv, a.norm1.y, kBare, work);
  a.norm1.y.reset(), dqkv.reset();
  return ops::norm_backward(dy1, ds2, a.norm1, *n1.weight, n1.bias.get(), norm_args_);
}

}  // namespace drivetrain::fused_block
