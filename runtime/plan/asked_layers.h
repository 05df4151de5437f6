// The outermost factory that a model is built with. It notes which parameters the model asked for, by the names that
// the specs of layers.h give them: all others are what strategies added to its layers. Main thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <drivetrain/toolkit/layers/decorated_layers.h>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL AskedLayers final : public DecoratedLayers {
 public:
  using DecoratedLayers::DecoratedLayers;

  std::shared_ptr<Linear> linear(const LinearSpec& spec) override;
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override;
  std::shared_ptr<Norm> norm(const NormSpec& spec) override;
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override;
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override;
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override;
  std::shared_ptr<Router> router(const RouterSpec& spec) override;
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override;

  // Names of the parameters of the layers so far that the model did not ask for.
  const std::set<std::string>& added() const { return added_; }

 private:
  template <class Made>
  std::shared_ptr<Made> noted(std::shared_ptr<Made> layer, const std::string& name);
  void note(const std::vector<ParamPtr>& params);

  std::set<std::string> asked_, added_;
};

}  // namespace drivetrain
