// The layer factory that a strategy put in place (Builder::layers), as the next strategy and the model call it. What it
// returns is checked, and whether it asks the factory inside: a decorator further inside would otherwise be without
// effect, and nobody would know. The outermost one, with which the model is built, also knows which parameters the
// model asked for: all others are what strategies added to its layers. Thread: main.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/layers.h>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL GuardedLayers final : public LayerFactory {
 public:
  // `factory`: of strategy `id`. `inside`: what this strategy found in its place; null: `factory` is the runtime's.
  GuardedLayers(std::string id, std::shared_ptr<LayerFactory> factory, std::shared_ptr<GuardedLayers> inside)
      : id_(std::move(id)), factory_(std::move(factory)), inside_(std::move(inside)) {}

  std::shared_ptr<Linear> linear(const LinearSpec& spec) override;
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override;
  std::shared_ptr<Norm> norm(const NormSpec& spec) override;
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override;
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override;
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override;
  std::shared_ptr<Router> router(const RouterSpec& spec) override;
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override;

  // After Model::build. Error(plugin) if a factory made a layer without asking the one inside, and that one, or one
  // further inside, would have decorated it. Names both. Asks the factories inside once more for such a layer.
  void check();

  // Names of the parameters of the layers so far that were not asked for.
  const std::set<std::string>& added() const { return added_; }

 private:
  enum Kind : size_t { kLinear, kEmbedding, kNorm, kAttention, kLmLoss, kRouter, kExperts, kKinds };
  // The last layer of a kind: kept, so that no other one has its address.
  struct Made {
    int64_t calls = 0;
    std::shared_ptr<const Layer> layer;
    std::vector<bool> trainable;
  };
  // The first layer that was made without asking inside.
  struct Alone {
    std::string layer;
    std::function<void()> ask_inside;
  };
  template <class L, class Spec, class Make>
  std::shared_ptr<L> make(Kind kind, const Spec& spec, const Make& call);
  bool decorates(Kind kind) const;
  void note(const std::vector<ParamPtr>& params);

  const std::string id_;
  const std::shared_ptr<LayerFactory> factory_;
  const std::shared_ptr<GuardedLayers> inside_;
  std::array<Made, kKinds> made_;
  std::array<Alone, kKinds> alone_;
  std::set<std::string> asked_, added_;
};

}  // namespace drivetrain
