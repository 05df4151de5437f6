// Base of factories that replace some layers of another factory (Builder::layers): a derived class overrides what it
// replaces, everything else is made by the factory inside. Thread: main.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <drivetrain/layers.h>

namespace drivetrain {

class DecoratedLayers : public LayerFactory {
 public:
  explicit DecoratedLayers(std::shared_ptr<LayerFactory> inner) : inner_(std::move(inner)) {}

  std::shared_ptr<Linear> linear(const LinearSpec& spec) override { return inner_->linear(spec); }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return inner_->embedding(spec); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return inner_->norm(spec); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override { return inner_->attention(spec); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return inner_->lm_loss(spec); }
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override {
    return inner_->block(spec, layers, plain);
  }
  std::shared_ptr<Router> router(const RouterSpec& spec) override { return inner_->router(spec); }
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override { return inner_->experts(spec); }

 protected:
  const std::shared_ptr<LayerFactory> inner_;
};

}  // namespace drivetrain
