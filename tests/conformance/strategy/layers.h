// Layers that compute something else than plain ones, as tensor parallelism and adapters do, and what a fused block has
// to make of them: the same as the model's own block, which calls each layer's forward. Legend: B batch, S sequence, D
// hidden.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <drivetrain/testkit/strategy/chain.h>

namespace drivetrain::test {

// Hands everything on, the question for blocks too: what decorators are made of.
struct OtherLayers : LayerFactory {
  explicit OtherLayers(std::shared_ptr<LayerFactory> inner) : inner(std::move(inner)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override { return inner->linear(spec); }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return inner->embedding(spec); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return inner->norm(spec); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override { return inner->attention(spec); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return inner->lm_loss(spec); }
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override {
    return inner->block(spec, layers, plain);
  }
  std::shared_ptr<LayerFactory> inner;
};

struct OtherLinear : Linear {
  explicit OtherLinear(std::shared_ptr<Linear> inner) : inner(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  ParamPtr bias() const override { return inner->bias(); }
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    return inner->apply(x, options, kept);
  }
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    return inner->apply_backward(dy, x, options, work);
  }
  std::shared_ptr<Linear> inner;
};

// y = 2 x W^T. Keeps x twice where it may, so that its backward can tell whether it gets what it kept.
struct ScaledLinear : OtherLinear {
  using OtherLinear::OtherLinear;
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    ++applied;
    if (kept) *kept = at::cat({x, x}), ++asked_to_keep;
    return inner->apply(x * 2, options, nullptr);
  }
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const int64_t B = dy.size(0);
    if (x.size(0) == 2 * B) ++got_kept;
    return inner->apply_backward(dy, x.narrow(0, 0, B) * 2, options, work) * 2;
  }
  static inline int64_t applied = 0, asked_to_keep = 0, got_kept = 0;
};

struct ScaledLayers : OtherLayers {
  using OtherLayers::OtherLayers;
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    return std::make_shared<ScaledLinear>(inner->linear(spec));
  }
};

// Layers with half of the positions between them: what the first of two ranks computes whose inputs are equal.
inline at::Tensor both_halves(const at::Tensor& x) { return at::cat({x, x}, 1); }
inline at::Tensor first_half(const at::Tensor& x) { return x.narrow(1, 0, x.size(1) / 2).clone(); }

struct GatheringLinear : OtherLinear {
  using OtherLinear::OtherLinear;
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    const at::Tensor all = both_halves(x);
    if (kept) *kept = all;
    return inner->apply(all, options, nullptr);
  }
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const at::Tensor dx = inner->apply_backward(dy, x.size(1) < dy.size(1) ? both_halves(x) : x, options, work);
    return dx.defined() ? first_half(dx) + dx.narrow(1, dx.size(1) / 2, dx.size(1) / 2) : dx;
  }
};

struct ScatteringLinear : OtherLinear {
  using OtherLinear::OtherLinear;
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor*) const override {
    return first_half(inner->apply(x, options, nullptr));
  }
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    return inner->apply_backward(at::cat({dy, at::zeros_like(dy)}, 1), x, options, work);
  }
};

struct HalvedEmbedding : Embedding {
  explicit HalvedEmbedding(std::shared_ptr<Embedding> inner) : inner(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  at::Tensor forward(const at::Tensor& ids, StepContext& ctx) override { return first_half(inner->forward(ids, ctx)); }
  std::shared_ptr<Embedding> inner;
};

struct GatheringLoss : LmLoss {
  explicit GatheringLoss(std::shared_ptr<LmLoss> inner) : inner(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  at::Tensor forward(const at::Tensor& x, StepContext& ctx) override { return inner->forward(both_halves(x), ctx); }
  std::shared_ptr<LmLoss> inner;
};

struct HalvedLayers : OtherLayers {
  using OtherLayers::OtherLayers;
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    if (spec.split == Split::columns) return std::make_shared<GatheringLinear>(inner->linear(spec));
    return std::make_shared<ScatteringLinear>(inner->linear(spec));
  }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override {
    const auto made = inner->embedding(spec);
    return spec.vocabulary ? std::make_shared<HalvedEmbedding>(made) : made;
  }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override {
    return std::make_shared<GatheringLoss>(inner->lm_loss(spec));
  }
};

template <class Factory>
void decorate(Builder& builder) {
  builder.layers = std::make_shared<Factory>(builder.layers);
}

}  // namespace drivetrain::test
