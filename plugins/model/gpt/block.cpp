// One transformer block, pre-norm: x += dropout(proj(attention(rotary(qkv(norm1(x)))))), x +=
// dropout(proj(act(fc(norm2(x))))).
//
// Source: Vaswani et al. 2017 with the norms of Radford et al. 2019 (GPT-2); grouped queries as in Ainslie et al. 2023.
// Legend: B batch, S sequence, D hidden, H query heads, G key/value heads, C head size, T = (H + 2 G) C.
#include <drivetrain/random.h>
#include <drivetrain/recompute.h>
#include <drivetrain/toolkit/layers/block_layers.h>
#include <drivetrain/toolkit/recompute/recomputable.h>
#include <drivetrain/toolkit/units/autograd_unit.h>

#include <ATen/ops/split_with_sizes.h>

#include <cmath>

#include "activations.h"
#include "unit_memory.h"
#include "units.h"

namespace drivetrain::gpt {
namespace {

double output_std(const Shape& s) { return s.init_std / std::sqrt(2.0 * static_cast<double>(s.layers)); }

class Block : public AutogradUnit {
 public:
  Block(const Shape& shape, const BlockSpec& spec, std::shared_ptr<Rotary> rotary, LayerFactory& layers)
      : AutogradUnit(spec.name), shape_(shape), rotary_(std::move(rotary)) {
    const BlockLayerSpecs specs = block_layer_specs(spec);
    norm1_ = layers.norm(*specs.norm1);
    qkv_ = layers.linear(specs.qkv);
    attention_ = layers.attention(specs.attention);
    attn_proj_ = layers.linear(specs.attn_proj);
    norm2_ = layers.norm(*specs.norm2);
    fc_ = layers.linear(specs.fc);
    mlp_proj_ = layers.linear(specs.mlp_proj);
  }

  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all;
    const Layer* layers[] = {norm1_.get(), qkv_.get(), attention_.get(), attn_proj_.get(),
                             norm2_.get(), fc_.get(),  mlp_proj_.get()};
    for (const Layer* layer : layers) {
      const auto own = layer->params();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

  bool is_block() const override { return true; }

  // On the residual stream the input, the sum after attention, and both norms' outputs for the weights behind them; of
  // the heads queries, keys, values and what attention returns; both sides of the activation function.
  std::optional<UnitKeeps> keeps() const override {
    const auto D = static_cast<double>(shape_.hidden), F = static_cast<double>(shape_.ffn);
    const auto queries = static_cast<double>(shape_.heads * shape_.head_dim),
               keys = static_cast<double>(shape_.groups * shape_.head_dim);
    UnitKeeps keeps;
    keeps.all = {4 * D, 2 * (queries + keys) + static_cast<double>(shape_.fc_width()) + F};
    keeps.inputs = {D, 0};
    keeps.regions = {{"norm", {2 * D, 0}}, {"attn.core", {0, queries}}, {"mlp.act", {0, F}}};
    return keeps;
  }

  std::optional<VisitMemory> visit_memory(const VisitShape& visit, const KeepOfRegion& keep) const override {
    const BlockKeeps keeps{qkv_->keeps_input(), fc_->keeps_input(), keep("norm"), keep("attn.core"), keep("mlp.act")};
    return block_memory(shape_, visit, keeps, attention_->memory(attention_shape(shape_, visit)));
  }

  Tensors run(const Tensors& in, StepContext& ctx) override {
    const at::Tensor x_BSD = residual_stream(in);
    // A branch's output is fresh memory that nobody keeps, so the residual is added in place.
    const at::Tensor y_BSD = drop(attention_branch(x_BSD, ctx), ".dropout1", ctx).add_(x_BSD);
    return {drop(mlp_branch(y_BSD, ctx), ".dropout2", ctx).add_(y_BSD)};
  }

 private:
  // The regions that a recompute policy knows are the cheap steps in front of a product. With Keep::nothing a region
  // begins with what is in front of it, the first product included.
  at::Tensor attention_branch(const at::Tensor& x_BSD, StepContext& ctx) {
    const auto norm = [this, &ctx](const Tensors& x) { return norm1_->forward(x[0], ctx); };
    const auto heads = [=, this, &ctx](const Tensors& x) {
      const QueryKeyValue h = split(recomputable_linear(ctx, "norm", x, norm, qkv_), ctx);
      return Tensors{h.q, h.k, h.v};
    };
    const auto core = [this, &ctx](const Tensors& h) { return attention_->forward(h[0], h[1], h[2], ctx).flatten(2); };
    if (ctx.keep("attn.core") != Keep::nothing)
      return recomputable_linear(ctx, "attn.core", heads({x_BSD}), core, attn_proj_);
    return recomputable_linear(
        ctx, "attn.core", {x_BSD}, [=](const Tensors& x) { return core(heads(x)); }, attn_proj_);
  }

  at::Tensor mlp_branch(const at::Tensor& y_BSD, StepContext& ctx) {
    const auto norm = [this, &ctx](const Tensors& y) { return norm2_->forward(y[0], ctx); };
    const auto first = [=, this, &ctx](const Tensors& y) {
      return Tensors{recomputable_linear(ctx, "norm", y, norm, fc_)};
    };
    const auto act = [this](const Tensors& h) { return activate(shape_.activation, h[0]); };
    if (ctx.keep("mlp.act") != Keep::nothing)
      return recomputable_linear(ctx, "mlp.act", first({y_BSD}), act, mlp_proj_);
    return recomputable_linear(
        ctx, "mlp.act", {y_BSD}, [=](const Tensors& y) { return act(first(y)); }, mlp_proj_);
  }

  // qkv [B, S, T]. Under tensor parallelism this rank has a share of every part, so heads are counted by the width
  // found.
  QueryKeyValue split(const at::Tensor& qkv, StepContext& ctx) const {
    const int64_t share = shape_.qkv_width() / qkv.size(2);
    const int64_t H = shape_.heads / share, G = shape_.groups / share, C = shape_.head_dim;
    if (rotary_) return rotary_->apply(qkv, H, G, ctx);
    const auto parts = at::split_with_sizes(qkv, {H * C, G * C, G * C}, -1);
    const auto by_head = [&](const at::Tensor& t, int64_t n) { return t.view({t.size(0), t.size(1), n, C}); };
    return {by_head(parts[0], H), by_head(parts[1], G), by_head(parts[2], G)};
  }

  at::Tensor drop(const at::Tensor& x, const char* site, StepContext& ctx) const {
    if (shape_.hidden_dropout == 0 || ctx.mode() != Mode::train) return x;
    return dropout(x, shape_.hidden_dropout, ctx.random(name() + site));
  }

  const Shape shape_;
  const std::shared_ptr<Rotary> rotary_;
  std::shared_ptr<Norm> norm1_, norm2_;
  std::shared_ptr<Linear> qkv_, attn_proj_, fc_, mlp_proj_;
  std::shared_ptr<AttentionLayer> attention_;
};

}  // namespace

BlockSpec block_spec(const Shape& s, int64_t index) {
  BlockSpec spec;
  spec.name = concat("block.", index);
  spec.hidden = s.hidden, spec.ffn = s.ffn, spec.heads = s.heads, spec.kv_heads = s.groups, spec.head_dim = s.head_dim;
  spec.rms = s.rms, spec.bias = s.bias, spec.qkv_bias = s.any_qkv_bias(), spec.rotary = s.rotary;
  spec.activation = s.activation;
  spec.proj_bias = s.bias;
  spec.norm_epsilon = s.norm_epsilon;
  spec.hidden_dropout = s.hidden_dropout, spec.attention_dropout = s.attention_dropout;
  spec.init_std = s.init_std, spec.output_init_std = output_std(s);
  if (s.rotary) spec.rotary_frequencies = rotary_frequencies(s.scaling, s.head_dim);
  return spec;
}

UnitPtr make_block(const Shape& shape, int64_t index, const std::shared_ptr<Rotary>& rotary, LayerFactory& layers) {
  const BlockSpec spec = block_spec(shape, index);
  return layers.block(spec, layers, [&]() -> UnitPtr { return std::make_shared<Block>(shape, spec, rotary, layers); });
}

}  // namespace drivetrain::gpt
