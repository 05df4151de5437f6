#include "block.h"

#include <ATen/core/grad_mode.h>

#include <bit>
#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/weight_grad.h>

namespace drivetrain::fused_block {

// What backward reads. A tensor that the recompute policy does not keep is undefined and computed again from those
// before it.
struct Activations {
  bool pair = false;           // x came as {residual, delta}
  std::vector<int64_t> shape;  // [B, S, D]
  double dropout = 0;
  RandomKey key1, key2;  // of both hidden dropouts
  ops::RotaryTable table;
  AttentionArgs attention_args;
  ops::Normed norm1, norm2;  // sums [B, S, D] always; y [B, S, D] if kept
  ops::Heads heads;          // kept without the attention's state
  AttentionState attention;
  at::Tensor fc_NF, act_NF;  // fc before its bias
};

// The recompute policy's answers. Nothing at all where no backward follows.
struct Kept {
  bool norms, heads, attention, fc, act;

  Kept(StepContext& ctx, bool recording, const BlockOptions& options)
      : norms(false), heads(false), attention(false), fc(false), act(false) {
    if (!recording) return;
    const Keep core = ctx.keep("attn.core"), mlp = ctx.keep("mlp.act");
    norms = ctx.keep("norm") == Keep::all && !options.recompute_cheap;
    attention = core == Keep::all, heads = core != Keep::nothing;
    act = mlp == Keep::all && !options.recompute_cheap, fc = mlp != Keep::nothing;
  }
};

namespace {

at::Tensor rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor value(const ParamPtr& param) { return param ? param->tensor : at::Tensor(); }

}  // namespace

// Where gradients of the matrices go: to their slots, or behind the backward of the inputs under a split schedule.
struct Block::Gradients {
  Saved& saved;
  const bool later;

  void weight(const ParamPtr& weight, const at::Tensor& dy_NO, const at::Tensor& x_NI) const {
    if (!weight->trainable) return;
    if (!later) return accumulate_weight_grad(*weight, dy_NO, x_NI);
    saved.weight_work.emplace_back([=] { accumulate_weight_grad(*weight, dy_NO, x_NI); });
  }
  void bias(const ParamPtr& bias, const at::Tensor& dy_NO) const {
    if (bias && bias->trainable) ops::accumulate_bias_grad(*bias, dy_NO);
  }
};

ops::RotaryTable Positions::table(const std::vector<double>& frequencies, int64_t length, const at::Tensor& like) {
  if (frequencies.empty()) return {};
  const at::ScalarType dtype = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor& cos = longest_.cos;
  const bool fits = cos.defined() && cos.size(0) >= length && cos.scalar_type() == dtype &&
                    cos.device() == like.device() && frequencies == frequencies_;
  if (!fits) {
    // A text that grows token by token asks for a new table now and then only.
    const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length)));
    longest_ = ops::rotary_table(frequencies, 0, room, like);
    frequencies_ = frequencies;
  }
  return {longest_.cos.narrow(0, 0, length), longest_.sin.narrow(0, 0, length)};
}

Block::Block(BlockSpec spec, BlockParams params, std::shared_ptr<Attention> attention,
             std::shared_ptr<Positions> positions, const BlockOptions& options)
    : Unit(spec.name),
      spec_(std::move(spec)),
      params_(std::move(params)),
      attention_(std::move(attention)),
      positions_(std::move(positions)),
      options_(options),
      norm_args_{spec_.norm_epsilon, spec_.rms},
      activation_(ops::activation_of(spec_.activation)) {}

// --- forward

Tensors Block::forward(const Tensors& x, StepContext& ctx, Saved& saved) {
  const bool recording = at::GradMode::is_enabled();
  const at::AutoGradMode off(false);
  const Kept keep(ctx, recording, options_);
  Activations a = begin(x, ctx);
  a.norm1 =
      ops::norm(x[0], a.pair ? x[1] : at::Tensor(), value(params_.norm1.weight), value(params_.norm1.bias), norm_args_);
  const at::Tensor branch = attention_forward(a, keep);
  a.norm2 = ops::norm(a.norm1.sum, branch, value(params_.norm2.weight), value(params_.norm2.bias), norm_args_);
  const Tensors out = {a.norm2.sum, mlp_forward(a, keep)};
  if (recording) saved.extra = std::move(a);
  return out;
}

Activations Block::begin(const Tensors& x, StepContext& ctx) const {
  Activations a;
  a.pair = x.size() == 2;
  a.shape = x[0].sizes().vec();
  const bool training = ctx.mode() == Mode::train;
  a.dropout = training ? spec_.hidden_dropout : 0;
  if (a.dropout > 0) a.key1 = ctx.random(name() + ".dropout1"), a.key2 = ctx.random(name() + ".dropout2");
  if (spec_.rotary) a.table = positions_->table(spec_.rotary_frequencies, a.shape[1], x[0]);
  a.attention_args.scale = 1 / std::sqrt(static_cast<double>(spec_.head_dim));
  if (training && spec_.attention_dropout > 0) {
    a.attention_args.dropout = spec_.attention_dropout;
    a.attention_args.key = ctx.random(name() + ".attn");
  }
  return a;
}

ops::Heads Block::heads_of(const at::Tensor& y1, const Activations& a) const {
  const at::Tensor qkv = product(rows(y1), params_.qkv.weight->tensor).view({a.shape[0], a.shape[1], -1});
  return ops::split_heads(qkv, value(params_.qkv.bias), a.table, spec_.heads, spec_.kv_heads);
}

// What is added to the residual stream, [B, S, D].
at::Tensor Block::attention_forward(Activations& a, const Kept& keep) const {
  a.heads = heads_of(a.norm1.y, a);
  if (!keep.norms) a.norm1.y.reset();
  a.attention = attention_->forward(a.heads.q, a.heads.k, a.heads.v, a.attention_args);
  const at::Tensor attended_ND = rows(a.attention.out.flatten(2));
  if (!keep.attention) a.attention = {};
  if (keep.attention || !keep.heads) a.heads = {};
  return drop(product(attended_ND, params_.attn_proj.weight->tensor, value(params_.attn_proj.bias)), a, a.key1);
}

at::Tensor Block::mlp_forward(Activations& a, const Kept& keep) const {
  a.fc_NF = product(rows(a.norm2.y), params_.fc.weight->tensor);
  if (!keep.norms) a.norm2.y.reset();
  a.act_NF = ops::activation(activation_, a.fc_NF, value(params_.fc.bias));
  if (!keep.fc) a.fc_NF.reset();
  const at::Tensor delta_ND = product(a.act_NF, params_.mlp_proj.weight->tensor, value(params_.mlp_proj.bias));
  if (!keep.act) a.act_NF.reset();
  return drop(delta_ND, a, a.key2);
}

// Its own backward: the mask is drawn again from the key.
at::Tensor Block::drop(const at::Tensor& x, const Activations& a, const RandomKey& key) const {
  return dropout(x.view(a.shape), a.dropout, key);
}

// --- backward

Tensors Block::backward(const Tensors& dy, StepContext& ctx, Saved& saved) {
  const at::AutoGradMode off(false);
  auto* a = std::any_cast<Activations>(&saved.extra);
  if (!a) throw fail(ErrorCode::internal, "block ", name(), " goes backward without a forward that was recorded");
  if (dy.size() != 2 || !dy[0].defined() || !dy[1].defined())
    throw fail(ErrorCode::internal, "block ", name(), " wants the gradients of residual and delta, got ", dy.size());
  Gradients gradients{saved, ctx.visit().part == Part::input};
  const at::Tensor ds2 = mlp_backward(dy, *a, gradients);
  const at::Tensor dx = attention_backward(ds2, *a, gradients);
  const bool pair = a->pair;
  saved.extra.reset();
  return pair ? Tensors{dx, dx} : Tensors{dx};
}

void Block::restore_norm(ops::Normed& norm, const WeightAndBias& p) const {
  if (!norm.y.defined()) norm.y = ops::norm_again(norm, value(p.weight), value(p.bias), norm_args_);
}

void Block::restore_mlp(Activations& a) const {
  if (!a.fc_NF.defined()) {
    restore_norm(a.norm2, params_.norm2);
    a.fc_NF = product(rows(a.norm2.y), params_.fc.weight->tensor);
  }
  if (!a.act_NF.defined()) a.act_NF = ops::activation(activation_, a.fc_NF, value(params_.fc.bias));
}

void Block::restore_attention(Activations& a) const {
  if (a.attention.out.defined()) return;
  if (!a.heads.q.defined()) {
    restore_norm(a.norm1, params_.norm1);
    a.heads = heads_of(a.norm1.y, a);
  }
  a.attention = attention_->forward(a.heads.q, a.heads.k, a.heads.v, a.attention_args);
  a.heads = {};
}

// dy of {s2, delta} -> gradient of s2, which is also that of s1 and of the attention's branch.
at::Tensor Block::mlp_backward(const Tensors& dy, Activations& a, Gradients& gradients) const {
  restore_mlp(a);
  at::Tensor dfc_NF;
  {
    const at::Tensor ddelta_ND = rows(drop(dy[1].contiguous(), a, a.key2));
    gradients.weight(params_.mlp_proj.weight, ddelta_ND, a.act_NF);
    gradients.bias(params_.mlp_proj.bias, ddelta_ND);
    a.act_NF.reset();
    const at::Tensor dact_NF = product_backward(ddelta_ND, params_.mlp_proj.weight->tensor);
    dfc_NF = ops::activation_backward(activation_, a.fc_NF, dact_NF, params_.fc.bias.get());
    a.fc_NF.reset();
  }
  restore_norm(a.norm2, params_.norm2);
  gradients.weight(params_.fc.weight, dfc_NF, rows(a.norm2.y));
  a.norm2.y.reset();
  const at::Tensor dy2 = product_backward(dfc_NF, params_.fc.weight->tensor).view(a.shape);
  dfc_NF.reset();
  const at::Tensor ds2 =
      ops::norm_backward(dy2, dy[0], a.norm2, *params_.norm2.weight, params_.norm2.bias.get(), norm_args_);
  a.norm2 = {};
  return ds2;
}

// Gradient of s2 -> gradient of x.
at::Tensor Block::attention_backward(const at::Tensor& ds2, Activations& a, Gradients& gradients) const {
  restore_attention(a);
  at::Tensor dqkv_NT;
  {
    const at::Tensor dbranch_ND = rows(drop(ds2, a, a.key1));
    gradients.weight(params_.attn_proj.weight, dbranch_ND, rows(a.attention.out.flatten(2)));
    gradients.bias(params_.attn_proj.bias, dbranch_ND);
    const at::Tensor dout = product_backward(dbranch_ND, params_.attn_proj.weight->tensor).view(a.attention.out.sizes());
    const Tensors d = attention_->backward(dout, a.attention, a.attention_args);
    a.attention = {};
    dqkv_NT = rows(ops::split_heads_backward({d[0], d[1], d[2]}, a.table, params_.qkv.bias.get()));
  }
  restore_norm(a.norm1, params_.norm1);
  gradients.weight(params_.qkv.weight, dqkv_NT, rows(a.norm1.y));
  a.norm1.y.reset();
  const at::Tensor dy1 = product_backward(dqkv_NT, params_.qkv.weight->tensor).view(a.shape);
  dqkv_NT.reset();
  return ops::norm_backward(dy1, ds2, a.norm1, *params_.norm1.weight, params_.norm1.bias.get(), norm_args_);
}

}  // namespace drivetrain::fused_block
