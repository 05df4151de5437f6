#include "block.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/weight_work.h>

#include "block_parts.h"

namespace drivetrain::fused_block {

Kept::Kept(const KeepOfRegion& keep, bool recording, const BlockOptions& options, bool chunks) {
  if (!recording) return;
  const Keep core = keep("attn.core"), mlp = chunks ? Keep::nothing : keep("mlp.act");
  by_layers = keep("norm") == Keep::all;
  norms = by_layers && !options.recompute_cheap;
  attention = core == Keep::all, heads = core != Keep::nothing;
  act = mlp == Keep::all && !options.recompute_cheap, fc = mlp != Keep::nothing;
}

namespace {

// What attention was given is made of qkv again. An attention that keeps something else in its place needs that.
void drop_heads(Activations& a) {
  AttentionState& state = a.attention;
  if (!state.q.is_same(a.heads.q) || !state.k.is_same(a.heads.k) || !state.v.is_same(a.heads.v)) return;
  state.q.reset(), state.k.reset(), state.v.reset();
}

NormReader reader_of(const NormParams& norm, const Linear& layer, bool may_compute) {
  const OperandLinear1* const takes = operands_of(layer);
  return {norm, layer, takes, may_compute && norm.here && takes};
}

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
      norm_args_{spec_.norm_epsilon, spec_.rms, spec_.norm_offset},
      qk_norm_{layers_.q_norm.weight.get(), layers_.k_norm.weight.get(), spec_.norm_epsilon, spec_.norm_offset},
      activation_(ops::activation_of(spec_.activation)),
      reader1_(reader_of(layers_.norm1, *layers_.qkv, true)),
      reader2_(reader_of(layers_.norm2, *layers_.fc, !in_chunks())),  // pieces are of what is written
      act_reader_(operands_of(*layers_.mlp_proj)) {}

// Both sums on the residual stream; queries, keys, values and attention's output; the first product of the MLP. The
// outputs of norms and of the activation function are computed again in backward anyway, unless the options say
// otherwise. What a linear layer keeps of a norm's output in their place comes from other ranks, and frees as much;
// what it computes itself it keeps in 8 bits.
std::optional<UnitKeeps> Block::keeps() const {
  const auto D = static_cast<double>(spec_.hidden), F = static_cast<double>(spec_.ffn);
  const auto queries = static_cast<double>(spec_.heads * spec_.head_dim),
             keys = static_cast<double>(spec_.kv_heads * spec_.head_dim);
  const double fc = ops::is_gated(activation_) ? 2 * F : F;
  const double sums = spec_.parallel ? 1 : 2, behind = layers_.attn_norm.here + layers_.mlp_norm.here;
  const double norms = reader1_.kept() + reader2_.kept();
  const double act = F * act_kept();
  const bool keeps_norms = !options_.recompute_cheap, keeps_fc = !in_chunks();
  const bool keeps_act = keeps_fc && !options_.recompute_cheap;
  const double by_layers =
      D * static_cast<double>(layers_.qkv->keeps_input() + (keeps_fc && layers_.fc->keeps_input()));
  UnitKeeps keeps;
  keeps.all = {(sums + behind) * D + (keeps_norms ? norms * D : 0),
               2 * (queries + keys) + (keeps_fc ? fc : 0) + (keeps_act ? act : 0)};
  keeps.inputs = {D, 0};  // the sum, as the runtime holds it
  keeps.regions = {{"norm", {keeps_norms ? norms * D : by_layers, 0}},
                   {"attn.core", {0, queries}},
                   {"mlp.act", {0, keeps_act ? act : 0}}};
  return keeps;
}

// --- forward

Tensors Block::forward(const Tensors& x, StepContext& ctx, Saved& saved) {
  const bool recording = at::GradMode::is_enabled();
  const at::AutoGradMode off(false);
  const Kept keep([&](std::string_view region) { return ctx.keep(region); }, recording, options_, in_chunks());
  Activations a = begin(x, ctx);
  a.norm1 = norm(x[0], a.pair ? x[1] : at::Tensor(), layers_.norm1, reader1_.computes);
  at::Tensor branch = attention_forward(a, keep, ctx), residual;
  if (spec_.parallel) residual = at::add(a.norm1.sum, std::exchange(branch, {}));
  a.norm2 = norm(a.norm1.sum, branch, layers_.norm2, reader2_.computes);
  branch.reset();
  if (!spec_.parallel) residual = a.norm2.sum;
  const Tensors out = {residual, mlp_forward(a, keep)};
  if (recording) saved.extra = std::move(a);
  return out;
}

ops::Normed Block::norm(const at::Tensor& x, const at::Tensor& delta, const NormParams& p, bool leave_y) const {
  ops::NormArgs args = norm_args_;
  args.leave_y = leave_y;
  if (p.here) return ops::norm(x, delta, value(p.weight), value(p.bias), args);
  const at::Tensor sum = delta.defined() ? at::add(x, delta) : x;
  return {sum, sum, {}, {}};
}

at::Tensor Block::leave(const at::Tensor& y, ops::Normed& kept, const NormParams& p, double dropped,
                        const RandomKey& key) const {
  if (p.here) kept = norm(y, {}, p, false);
  const at::Tensor branch = dropout(p.here ? std::exchange(kept.y, {}) : y, dropped, key);
  return spec_.residual_scale == 1 ? branch : at::mul(branch, spec_.residual_scale);
}

Linear::Options Block::qkv_options(const at::Tensor& x, const ops::RotaryTable& table) const {
  // Where nothing is to be done, a GPU's product adds the bias itself, and q, k and v are views of its result.
  return x.is_cpu() || table.cos.defined() || qk_norm_.q ? kBare : kWhole;
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
  return ops::split_heads(qkv, bias, a.table, spec_.heads / share, spec_.kv_heads / share, qk_norm_);
}

// What is added to the residual stream, [B, S, D].
at::Tensor Block::attention_forward(Activations& a, const Kept& keep, StepContext& ctx) const {
  // What is to be multiplied again must stay as it is.
  const Replace replace = replace_if(keep.by_layers && (keep.heads || keep.attention));
  bool replaced = false;
  at::Tensor qkv = after_norm(norm1_of(a), qkv_options(a.norm1.sum, a.table), replace, keep.norms, &replaced);
  a.heads = heads_of(qkv, a);
  if (qk_norm_.q && (keep.attention || keep.heads)) a.qkv = qkv;
  qkv.reset();
  if (!keep.norms && !replaced) a.norm1.y.reset();
  const auto& [q, k, v] = a.heads;
  if (ctx.cache())  // no backward follows
    a.attention.out = layers_.attention->forward(q, k, v, ctx);
  else
    a.attention = attention_->forward(q, k, v, a.attention_args);
  const at::Tensor attended = a.attention.out.flatten(2);
  if (!keep.attention) a.attention = {};
  if (a.qkv.defined() && keep.attention) drop_heads(a);
  if (keep.attention || !keep.heads || a.qkv.defined()) a.heads = {};
  const at::Tensor branch = layers_.attn_proj->apply(attended, kWhole, keep.attention ? &a.attended : nullptr);
  return leave(branch, a.attn_norm, layers_.attn_norm, a.dropout, a.key1);
}

at::Tensor Block::mlp_forward(Activations& a, const Kept& keep) const {
  if (in_chunks()) return mlp_chunks_forward(a, keep);
  bool replaced = false;
  Inner& h = a.mlp;
  first_product(norm2_of(a), h, replace_if(keep.by_layers && keep.fc), keep.norms, &replaced);
  if (!keep.norms && !replaced) a.norm2.y.reset();
  restore_act(h);
  if (!keep.fc && h.act.defined()) h.fc.reset();
  const at::Tensor delta = second_product(h, keep.act);
  if (!keep.fc) h.fc.reset();
  if (!keep.act) h.act.reset();
  return leave(delta, a.mlp_norm, layers_.mlp_norm, a.dropout, a.key2);
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
  const at::Tensor dx = attention_backward(spec_.parallel ? dy[0] : ds2, ds2, *a, work);
  const bool pair = a->pair;
  saved.extra.reset();
  return pair ? Tensors{dx, dx} : Tensors{dx};
}

void Block::restore_norm(ops::Normed& norm, const NormParams& p) const {
  if (!norm.y.defined()) norm.y = p.here ? ops::norm_again(norm, value(p.weight), value(p.bias), norm_args_) : norm.sum;
}

at::Tensor Block::norm_backward(const at::Tensor& dy, const at::Tensor& dsum, const ops::Normed& kept,
                                const NormParams& p) const {
  if (p.here) return ops::norm_backward(dy, dsum, kept, p.weight.get(), p.bias.get(), norm_args_);
  return at::add(dy, dsum);
}

// Dropout is its own backward: the mask is drawn again from the key.
at::Tensor Block::leave_backward(const at::Tensor& dy, ops::Normed& kept, const NormParams& p, double dropped,
                                 const RandomKey& key) const {
  const at::Tensor scaled = spec_.residual_scale == 1 ? dy.contiguous() : at::mul(dy, spec_.residual_scale);
  const at::Tensor d = dropout(scaled, dropped, key);
  if (!p.here) return d;
  const at::Tensor dx = norm_backward(d, {}, kept, p);
  kept = {};
  return dx;
}

void Block::restore_mlp(Activations& a) const {
  if (!a.mlp.fc.defined()) first_product(norm2_of(a), a.mlp, Replace::yes);
  restore_act(a.mlp);
}

void Block::restore_attention(Activations& a) const {
  AttentionState& state = a.attention;
  if (state.out.defined() && state.q.defined()) return;
  if (!a.heads.q.defined()) {
    at::Tensor qkv = a.qkv;
    if (!qkv.defined()) qkv = after_norm(norm1_of(a), qkv_options(a.norm1.sum, a.table), Replace::yes);
    a.heads = heads_of(qkv, a);
    if (qk_norm_.q) a.qkv = qkv;
  }
  if (state.out.defined())
    state.q = a.heads.q, state.k = a.heads.k, state.v = a.heads.v;
  else
    a.attention = attention_->forward(a.heads.q, a.heads.k, a.heads.v, a.attention_args);
  a.heads = {};
}

// dy of {s2, delta} -> gradient of s2, which is also that of s1 and of the attention's branch; of s1 alone in a
// parallel block.
at::Tensor Block::mlp_backward(const Tensors& dy, Activations& a, WeightWork& work) const {
  if (in_chunks()) return mlp_chunks_backward(dy, a, work);
  restore_mlp(a);
  at::Tensor dy2;
  {
    const ops::Operand dfc =
        second_backward(leave_backward(dy[1], a.mlp_norm, layers_.mlp_norm, a.dropout, a.key2), a.mlp, work);
    dy2 = back_to_norm(norm2_of(a), dfc, work);
  }
  const at::Tensor ds2 = norm_backward(dy2, dy[0], a.norm2, layers_.norm2);
  a.norm2 = {};
  return ds2;
}

// Gradients of what the branch is added to, and of s1 without the branch -> gradient of x.
at::Tensor Block::attention_backward(const at::Tensor& ds2, const at::Tensor& ds1, Activations& a,
                                     WeightWork& work) const {
  restore_attention(a);
  at::Tensor dqkv;
  {
    const at::Tensor& out = a.attention.out;
    at::Tensor dbranch = leave_backward(ds2, a.attn_norm, layers_.attn_norm, a.dropout, a.key1);
    if (!a.attended.defined()) a.attended = out.flatten(2);
    const at::Tensor dout = layers_.attn_proj->apply_backward(dbranch, a.attended, kWhole, work).reshape(out.sizes());
    dbranch.reset(), a.attended.reset();
    const Tensors d = attention_->backward(dout, a.attention, a.attention_args);
    a.attention = {};
    dqkv = ops::split_heads_backward({d[0], d[1], d[2]}, a.qkv, a.table, layers_.qkv->bias().get(), qk_norm_);
    a.qkv.reset();
  }
  const at::Tensor dy1 = back_to_norm(norm1_of(a), dqkv, work);
  dqkv.reset();
  return norm_backward(dy1, ds1, a.norm1, layers_.norm1);
}

}  // namespace drivetrain::fused_block
