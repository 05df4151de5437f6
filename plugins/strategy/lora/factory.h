// The layers of a model whose own weights are frozen, with adapters beside the chosen ones.
#pragma once

#include <memory>
#include <vector>

#include <drivetrain/layers.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>

#include "layer.h"
#include "targets.h"

namespace drivetrain::lora {

// What was made, of the whole model. Filled while the model is built.
struct Made {
  struct Adapted {
    ParamPtr weight;  // of the layer
    std::shared_ptr<AdaptedLinear> layer;
    std::vector<Adapter> adapters;
  };
  std::vector<Adapted> layers;
};

class AdaptedLayers final : public DecoratedLayers {
 public:
  AdaptedLayers(std::shared_ptr<LayerFactory> inner, std::shared_ptr<Targets> targets, std::shared_ptr<Made> made,
                const Options& options, const Mesh& mesh)
      : DecoratedLayers(std::move(inner)),
        targets_(std::move(targets)),
        made_(std::move(made)),
        options_(options),
        mesh_(mesh) {}

  std::shared_ptr<Linear> linear(const LinearSpec& spec) override;
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return frozen(inner_->embedding(spec)); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return frozen(inner_->norm(spec)); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override {
    return frozen(inner_->attention(spec));
  }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return frozen(inner_->lm_loss(spec)); }

 private:
  template <class L>
  std::shared_ptr<L> frozen(std::shared_ptr<L> layer) const {
    for (const ParamPtr& param : layer->params()) param->trainable = targets_->trained_whole(param->name);
    return layer;
  }

  const std::shared_ptr<Targets> targets_;
  const std::shared_ptr<Made> made_;
  const Options options_;
  const Mesh& mesh_;
};

}  // namespace drivetrain::lora
