// For the test of fused blocks: a block of the layers of block_layers.h by autograd, with an attention by its formula.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "conformance/strategy/memory.h"

#include <limits>

#include <drivetrain/attention.h>
#include <drivetrain/layers.h>
#include <drivetrain/toolkit/layers/block_layers.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/units/autograd_unit.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain::test {

class FormulaAttention : public Attention {
 public:
  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.dtypes = {at::kFloat, at::kDouble};
    can.gqa = can.window = can.softcap = true;
    return can;
  }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    const at::AutoGradMode off(false);
    const TakesInstead nothing(0);
    AttentionState state;
    state.q = q, state.k = k, state.v = v, state.out = compute(q, k, v, args);
    state.lse = at::empty({q.size(0), q.size(2), q.size(1)}, q.options());  // for what it takes
    return state;
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    const at::AutoGradMode on(true);
    const TakesInstead nothing(0);
    const auto leaf = [](const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); };
    const at::Tensor q = leaf(state.q), k = leaf(state.k), v = leaf(state.v);
    compute(q, k, v, args).backward(dout);
    return {q.grad(), k.grad(), v.grad()};
  }

  static at::Tensor compute(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args) {
    const int64_t S = q.size(1), of_group = q.size(2) / k.size(2);
    const auto by_head = [&](const at::Tensor& x, int64_t times) {
      return x.repeat_interleave(times, 2).transpose(1, 2);
    };
    at::Tensor scores = by_head(q, 1).matmul(by_head(k, of_group).transpose(2, 3)) * args.scale;
    if (args.softcap > 0) scores = (scores / args.softcap).tanh() * args.softcap;
    at::Tensor seen = at::ones({S, S}, q.options()).tril();
    if (args.window > 0) seen = seen.triu(1 - args.window);
    scores = scores.masked_fill(seen.eq(0), -std::numeric_limits<double>::infinity());
    return scores.softmax(-1).matmul(by_head(v, of_group)).transpose(1, 2).contiguous();
  }
};

// The block as block_layers.h describes it.
class FormulaBlock : public AutogradUnit {
 public:
  FormulaBlock(const BlockSpec& s, LayerFactory& layers) : AutogradUnit(s.name), s_(s) {
    const BlockLayerSpecs specs = block_layer_specs(s);
    const auto norm = [&](const std::optional<NormSpec>& spec) { return spec ? kept(layers.norm(*spec)) : nullptr; };
    norm1_ = norm(specs.norm1), qkv_ = kept(layers.linear(specs.qkv));
    q_norm_ = norm(specs.q_norm), k_norm_ = norm(specs.k_norm);
    attention_ = layers.attention(specs.attention), attn_proj_ = kept(layers.linear(specs.attn_proj));
    attn_norm_ = norm(specs.attn_norm), norm2_ = norm(specs.norm2);
    fc_ = kept(layers.linear(specs.fc)), mlp_proj_ = kept(layers.linear(specs.mlp_proj));
    mlp_norm_ = norm(specs.mlp_norm);
  }
  std::vector<ParamPtr> params() const override { return params_; }

  Tensors run(const Tensors& in, StepContext& ctx) override {
    const at::Tensor x = in.size() == 2 ? at::add(in[0], in[1]) : in[0];
    const auto normed = [&](const std::shared_ptr<Norm>& norm, const at::Tensor& y) {
      return norm ? norm->forward(y, ctx) : y;
    };
    const at::Tensor a = normed(attn_norm_, attention(normed(norm1_, x), ctx)) * s_.residual_scale;
    const at::Tensor y = x + a;
    const at::Tensor f = fc_->forward(normed(norm2_, s_.parallel ? x : y), ctx);
    return {y + normed(mlp_norm_, mlp_proj_->forward(activated(f), ctx)) * s_.residual_scale};
  }

 private:
  template <class L>
  std::shared_ptr<L> kept(std::shared_ptr<L> layer) {
    for (const ParamPtr& param : layer->params()) params_.push_back(param);
    return layer;
  }
  at::Tensor attention(const at::Tensor& h, StepContext& ctx) {
    const int64_t H = s_.heads, G = s_.kv_heads, C = s_.head_dim, B = h.size(0), S = h.size(1);
    const at::Tensor qkv = qkv_->forward(h, ctx);
    const auto part = [&](int64_t first, int64_t heads) {
      return qkv.narrow(2, first * C, heads * C).reshape({B, S, heads, C});
    };
    const auto query_or_key = [&](const at::Tensor& x, const std::shared_ptr<Norm>& norm) {
      if (!norm) return turned(x);
      const bool all = s_.qk_norm == NormOver::heads;
      return turned(norm->forward(all ? x.flatten(2) : x, ctx).view(x.sizes()));
    };
    const at::Tensor q = query_or_key(part(0, H), q_norm_), k = query_or_key(part(H, G), k_norm_);
    return attn_proj_->forward(FormulaAttention::compute(q, k, part(H + G, G), attention_->args(ctx)).flatten(2), ctx);
  }
  at::Tensor turned(const at::Tensor& x) const {
    if (!s_.rotary) return x;
    const auto n = static_cast<int64_t>(s_.rotary_frequencies.size());
    at::Tensor w = at::empty({n}, at::TensorOptions(at::kDouble));
    for (int64_t i = 0; i < n; ++i) w.mutable_data_ptr<double>()[i] = s_.rotary_frequencies[static_cast<size_t>(i)];
    const at::Tensor angles = at::arange(x.size(1), w.options()).view({-1, 1, 1}) * w;
    const at::Tensor cos = (angles.cos() * s_.rotary_scale).to(x.scalar_type()),
                     sin = (angles.sin() * s_.rotary_scale).to(x.scalar_type());
    const at::Tensor a = x.narrow(3, 0, n), b = x.narrow(3, n, n), rest = x.narrow(3, 2 * n, x.size(3) - 2 * n);
    return at::cat({a * cos - b * sin, b * cos + a * sin, rest}, 3);
  }
  at::Tensor activated(const at::Tensor& f) const {
    const ops::Activation kind = ops::activation_of(s_.activation);
    return differentiable(
        {f}, [&](const Tensors& in) { return Tensors{ops::activation(kind, in[0], {})}; },
        [kind, f = f.detach()](const Tensors& dy) {
          return Tensors{ops::activation_backward(kind, f, dy[0], nullptr)};
        })[0];
  }

  const BlockSpec s_;
  std::vector<ParamPtr> params_;
  std::shared_ptr<Norm> norm1_, norm2_, q_norm_, k_norm_, attn_norm_, mlp_norm_;
  std::shared_ptr<Linear> qkv_, attn_proj_, fc_, mlp_proj_;
  std::shared_ptr<AttentionLayer> attention_;
};

class OneVisit : public StepContext {
 public:
  OneVisit(int64_t B, int64_t S, Keep keep) : keep_(keep) {
    batch_.tokens_BS = at::empty({B, S}, at::TensorOptions(at::kLong));
  }
  int64_t step() const override { return 1; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  Keep keep(std::string_view) const override { return keep_; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}

 private:
  Batch batch_;
  Visit visit_;
  const Keep keep_;
};

}  // namespace drivetrain::test
