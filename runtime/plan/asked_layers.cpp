#include "plan/asked_layers.h"

namespace drivetrain {

template <class Made>
std::shared_ptr<Made> AskedLayers::noted(std::shared_ptr<Made> layer, const std::string& name) {
  asked_.insert(name + ".weight"), asked_.insert(name + ".bias");
  if (layer) note(layer->params());
  return layer;
}

void AskedLayers::note(const std::vector<ParamPtr>& params) {
  for (const ParamPtr& param : params)
    if (param && !asked_.count(param->name)) added_.insert(param->name);
}

std::shared_ptr<Linear> AskedLayers::linear(const LinearSpec& spec) { return noted(inner_->linear(spec), spec.name); }

std::shared_ptr<Embedding> AskedLayers::embedding(const EmbeddingSpec& spec) {
  return noted(inner_->embedding(spec), spec.name);
}

std::shared_ptr<Norm> AskedLayers::norm(const NormSpec& spec) { return noted(inner_->norm(spec), spec.name); }

std::shared_ptr<AttentionLayer> AskedLayers::attention(const AttentionSpec& spec) {
  return noted(inner_->attention(spec), spec.name);
}

std::shared_ptr<LmLoss> AskedLayers::lm_loss(const LmLossSpec& spec) {
  if (spec.tied) asked_.insert(spec.tied->name);
  return noted(inner_->lm_loss(spec), spec.name);
}

std::shared_ptr<Router> AskedLayers::router(const RouterSpec& spec) { return noted(inner_->router(spec), spec.name); }

std::shared_ptr<Experts> AskedLayers::experts(const ExpertsSpec& spec) {
  asked_.insert(spec.name + ".fc.weight");
  return noted(inner_->experts(spec), spec.name + ".proj");
}

// The model's own block has parameters that it made itself; a strategy's asks `layers` for those of the model.
UnitPtr AskedLayers::block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) {
  bool is_models = false;
  UnitPtr unit = inner_->block(spec, layers, [&] {
    is_models = true;
    return plain();
  });
  if (unit && !is_models) note(unit->params());
  return unit;
}

}  // namespace drivetrain
