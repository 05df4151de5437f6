// One transformer block. With norms before: x += r dropout(proj(attention(rotary(qkv(norm1(x)))))), x +=
// r dropout(proj(act(fc(norm2(x))))); the layers that other families add or leave out are those of block_layers.h.
//
// Source: Vaswani et al. 2017 with the norms of Radford et al. 2019 (GPT-2); grouped queries as in Ainslie et al. 2023;
// norms of queries and keys as in Dehghani et al. 2023; parallel branches as in Wang and Komatsuzaki 2021 (GPT-J).
// Legend: B batch, S sequence, D hidden, H query heads, G key/value heads, C head size, T = (H + 2 G) C.
#include <drivetrain/random.h>
#include <drivetrain/recompute.h>
#include <drivetrain/toolkit/layers/block_layers.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/recompute/recomputable.h>
#include <drivetrain/toolkit/units/autograd_unit.h>

#include <ATen/ops/split_with_sizes.h>

#include "activations.h"
#include "block_spec.h"
#include "unit_memory.h"
#include "units.h"

namespace drivetrain::gpt {
namespace {

class Block : public AutogradUnit {
 public:
  Block(const Shape& shape, const BlockSpec& spec, std::shared_ptr<Rotary> rotary, LayerFactory& layers)
      : AutogradUnit(spec.name),
        shape_(shape),
        parallel_(spec.parallel),
        window_(spec.window),
        rotary_(std::move(rotary)) {
    const BlockLayerSpecs specs = block_layer_specs(spec);
    const auto norm = [&](const std::optional<NormSpec>& one) { return one ? layers.norm(*one) : nullptr; };
    norm1_ = norm(specs.norm1);
    qkv_ = layers.linear(specs.qkv);
    q_norm_ = norm(specs.q_norm), k_norm_ = norm(specs.k_norm);
    attention_ = layers.attention(specs.attention);
    attn_proj_ = layers.linear(specs.attn_proj);
    attn_norm_ = norm(specs.attn_norm), norm2_ = norm(specs.norm2);
    if (spec.mixture) {
      mixture_.emplace(*spec.mixture, specs, spec.activation, layers);
    } else {
      fc_ = layers.linear(specs.fc);
      mlp_proj_ = layers.linear(specs.mlp_proj);
    }
    mlp_norm_ = norm(specs.mlp_norm);
  }

  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all;
    const auto add = [&](const std::vector<ParamPtr>& own) { all.insert(all.end(), own.begin(), own.end()); };
    const Layer* const before[] = {norm1_.get(),     qkv_.get(),       q_norm_.get(),    k_norm_.get(),
                                   attention_.get(), attn_proj_.get(), attn_norm_.get(), norm2_.get()};
    for (const Layer* layer : before)
      if (layer) add(layer->params());
    if (mixture_) add(mixture_->params());
    const Layer* const behind[] = {fc_.get(), mlp_proj_.get(), mlp_norm_.get()};
    for (const Layer* layer : behind)
      if (layer) add(layer->params());
    return all;
  }

  bool is_block() const override { return true; }

  // On the residual stream the input, the sum after attention, both norms' outputs for the weights behind them, and
  // what norms behind the branches read; of the heads queries, keys, values and what attention returns, and what norms
  // of queries and keys read; both sides of the activation function. Of experts the rows that they read and return, and
  // what is in front of their activation; the norm in front of a mixture is kept.
  std::optional<UnitKeeps> keeps() const override {
    const auto D = static_cast<double>(shape_.hidden);
    const auto queries = static_cast<double>(shape_.heads * shape_.head_dim),
               keys = static_cast<double>(shape_.groups * shape_.head_dim);
    const double before = norm1_ ? 2 * D : 0, after = attn_norm_ ? 2 * D : 0, normed = q_norm_ ? queries + keys : 0;
    const ExpertShape& m = shape_.mixture;
    const int64_t inner = mixture_ ? m.shared_ffn : shape_.ffn;
    const double of_rows = mixture_ ? expert_rows(1) * (2 * D + static_cast<double>(shape_.fc_width(m.ffn))) : 0;
    UnitKeeps keeps;
    keeps.all = {(parallel_ ? D : 2 * D) + before + after + of_rows,
                 2 * (queries + keys) + normed + static_cast<double>(shape_.fc_width(inner) + inner)};
    keeps.inputs = {D, 0};
    keeps.regions = {{"norm", {mixture_ ? before / 2 : before, 0}}, {"attn.core", {0, queries}}};
    if (!mixture_) keeps.regions.push_back({"mlp.act", {0, static_cast<double>(inner)}});
    return keeps;
  }

  std::optional<VisitMemory> visit_memory(const VisitShape& visit, const KeepOfRegion& keep) const override {
    BlockKeeps keeps{qkv_->keeps_input(), fc_ && fc_->keeps_input(), keep("norm"), keep("attn.core"), keep("mlp.act")};
    if (mixture_) {
      keeps.expert_rows = expert_rows(visit.rank_tokens);
      keeps.kept_rows =
          drivetrain::kept_rows(mixture_->experts(), visit.rank_tokens * static_cast<double>(shape_.mixture.chosen),
                                visit.on_cpu ? at::kCPU : at::kCUDA);
    }
    return block_memory(shape_, visit, keeps, attention_->memory(attention_shape(shape_, visit, window_)));
  }

  Tensors run(const Tensors& in, StepContext& ctx) override {
    const at::Tensor x_BSD = residual_stream(in);
    // A branch's output is fresh memory that nobody keeps, so the residual is added in place.
    at::Tensor y_BSD = branch(attention_branch(x_BSD, ctx), ".dropout1", ctx).add_(x_BSD);
    if (parallel_) return {y_BSD.add_(branch(mlp_branch(x_BSD, ctx), ".dropout2", ctx))};
    return {branch(mlp_branch(y_BSD, ctx), ".dropout2", ctx).add_(y_BSD)};
  }

 private:
  double expert_rows(double tokens) const {
    return mixture_->experts().planned_rows(tokens * static_cast<double>(shape_.mixture.chosen));
  }

  // What a branch adds to the residual stream.
  at::Tensor branch(const at::Tensor& x, const char* site, StepContext& ctx) const {
    at::Tensor y = x;
    if (shape_.hidden_dropout > 0 && ctx.mode() == Mode::train)
      y = dropout(x, shape_.hidden_dropout, ctx.random(name() + site));
    return shape_.residual_scale == 1 ? y : y.mul_(shape_.residual_scale);
  }

  // The regions that a recompute policy knows are the cheap steps in front of a product. With Keep::nothing a region
  // begins with what is in front of it, the first product included.
  at::Tensor attention_branch(const at::Tensor& x_BSD, StepContext& ctx) {
    const auto heads = [this, &ctx](const Tensors& x) {
      const QueryKeyValue h = split(behind_norm(x, norm1_, qkv_, ctx), ctx);
      return Tensors{h.q, h.k, h.v};
    };
    const auto core = [this, &ctx](const Tensors& h) { return attention_->forward(h[0], h[1], h[2], ctx).flatten(2); };
    const at::Tensor out =
        ctx.keep("attn.core") != Keep::nothing
            ? recomputable_linear(ctx, "attn.core", heads({x_BSD}), core, attn_proj_)
            : recomputable_linear(
                  ctx, "attn.core", {x_BSD}, [=](const Tensors& x) { return core(heads(x)); }, attn_proj_);
    return attn_norm_ ? attn_norm_->forward(out, ctx) : out;
  }

  at::Tensor mlp_branch(const at::Tensor& y_BSD, StepContext& ctx) {
    if (mixture_) {
      const at::Tensor out = mixture_->forward(norm2_ ? norm2_->forward(y_BSD, ctx) : y_BSD, ctx);
      return mlp_norm_ ? mlp_norm_->forward(out, ctx) : out;
    }
    const auto first = [this, &ctx](const Tensors& y) { return Tensors{behind_norm(y, norm2_, fc_, ctx)}; };
    const auto act = [this](const Tensors& h) { return activate(shape_.activation, h[0]); };
    const at::Tensor out =
        ctx.keep("mlp.act") != Keep::nothing
            ? recomputable_linear(ctx, "mlp.act", first({y_BSD}), act, mlp_proj_)
            : recomputable_linear(
                  ctx, "mlp.act", {y_BSD}, [=](const Tensors& y) { return act(first(y)); }, mlp_proj_);
    return mlp_norm_ ? mlp_norm_->forward(out, ctx) : out;
  }

  at::Tensor behind_norm(const Tensors& x, const std::shared_ptr<Norm>& norm, const std::shared_ptr<Linear>& linear,
                         StepContext& ctx) {
    if (!norm) return linear->forward(x[0], ctx);
    return recomputable_linear(
        ctx, "norm", x, [norm, &ctx](const Tensors& in) { return norm->forward(in[0], ctx); }, linear);
  }

  // qkv [B, S, T]. Under tensor parallelism this rank has a share of every part, so heads are counted by the width
  // found.
  QueryKeyValue split(const at::Tensor& qkv, StepContext& ctx) const {
    const int64_t share = shape_.qkv_width() / qkv.size(2);
    const int64_t H = shape_.heads / share, G = shape_.groups / share, C = shape_.head_dim;
    if (rotary_ && !q_norm_) return rotary_->apply(qkv, H, G, ctx);
    const auto parts = at::split_with_sizes(qkv, {H * C, G * C, G * C}, -1);
    const auto by_head = [&](const at::Tensor& t, int64_t n) { return t.view({t.size(0), t.size(1), n, C}); };
    if (!q_norm_) return {by_head(parts[0], H), by_head(parts[1], G), by_head(parts[2], G)};
    // Copies, so that nothing holds the fused tensor.
    const auto normed = [&](const at::Tensor& part, Norm& norm, int64_t n) {
      const at::Tensor x = part.contiguous();
      const at::Tensor y =
          shape_.qk_norm == NormOver::head ? norm.forward(by_head(x, n), ctx) : by_head(norm.forward(x, ctx), n);
      return rotary_ ? rotary_->turn(y, ctx) : y;
    };
    return {normed(parts[0], *q_norm_, H), normed(parts[1], *k_norm_, G), by_head(parts[2].contiguous(), G)};
  }

  const Shape shape_;
  const bool parallel_;
  const int64_t window_;
  const std::shared_ptr<Rotary> rotary_;
  std::shared_ptr<Norm> norm1_, q_norm_, k_norm_, attn_norm_, norm2_, mlp_norm_;
  std::shared_ptr<Linear> qkv_, attn_proj_, fc_, mlp_proj_;
  std::shared_ptr<AttentionLayer> attention_;
  std::optional<Mixture> mixture_;  // in place of fc_ and mlp_proj_
};

}  // namespace

UnitPtr make_block(const Shape& shape, int64_t index, int64_t length, const Rotaries& rotaries, LayerFactory& layers) {
  const BlockSpec spec = block_spec(shape, index, length);
  std::shared_ptr<Rotary> rotary;
  if (shape.turns(index)) rotary = shape.is_local(index) ? rotaries.local : rotaries.all;
  return layers.block(spec, layers, [&]() -> UnitPtr { return std::make_shared<Block>(shape, spec, rotary, layers); });
}

}  // namespace drivetrain::gpt
