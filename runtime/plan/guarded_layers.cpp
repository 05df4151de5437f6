#include "plan/guarded_layers.h"

#include <algorithm>
#include <optional>

#include <drivetrain/error.h>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

// By GuardedLayers::Kind: the calls of LayerFactory.
constexpr std::array<const char*, 7> kCalls = {"linear",  "embedding", "norm",   "attention",
                                               "lm_loss", "router",    "experts"};

// The parameters that a model asks for with a spec: layers.h names them.
template <class Spec>
std::vector<std::string> asked_by(const Spec& spec) {
  return {spec.name + ".weight", spec.name + ".bias"};
}
std::vector<std::string> asked_by(const LmLossSpec& spec) {
  return {spec.name + ".weight", spec.name + ".bias", spec.tied ? spec.tied->name : ""};
}
std::vector<std::string> asked_by(const ExpertsSpec& spec) {
  return {spec.name + ".fc.weight", spec.name + ".proj.weight", spec.name + ".proj.bias"};
}

}  // namespace

template <class L, class Spec, class Make>
std::shared_ptr<L> GuardedLayers::make(Kind kind, const Spec& spec, const Make& call) {
  const PluginCall named{id_, kCalls.at(kind), spec.name, "layer"};
  PluginCall passing = named;
  passing.keeps_errors = true;
  const int64_t before = inside_ ? inside_->made_.at(kind).calls : 0;
  const std::shared_ptr<L> layer = plugin_call(passing, [&] { return call(*factory_); });
  plugin_call(named, [&] {
    if (!layer) throw fail(ErrorCode::plugin, "returned null; wanted a layer");
    const std::vector<ParamPtr> params = layer->params();
    if (std::find(params.begin(), params.end(), nullptr) != params.end())
      throw fail(ErrorCode::plugin, "returned a layer with a null parameter among its ", params.size());
  });
  Made& made = made_.at(kind);
  ++made.calls, made.layer = layer, made.trainable.clear();
  for (const ParamPtr& param : layer->params()) made.trainable.push_back(param->trainable);
  for (std::string& name : asked_by(spec)) asked_.insert(std::move(name));
  note(layer->params());
  if (inside_ && inside_->made_.at(kind).calls == before && !alone_.at(kind).ask_inside)
    alone_.at(kind) = {spec.name, [this, call] { (void)call(*inside_); }};
  return layer;
}

void GuardedLayers::note(const std::vector<ParamPtr>& params) {
  for (const ParamPtr& param : params)
    if (param && !asked_.count(param->name)) added_.insert(param->name);
}

std::shared_ptr<Linear> GuardedLayers::linear(const LinearSpec& spec) {
  return make<Linear>(kLinear, spec, [spec](LayerFactory& f) { return f.linear(spec); });
}
std::shared_ptr<Embedding> GuardedLayers::embedding(const EmbeddingSpec& spec) {
  return make<Embedding>(kEmbedding, spec, [spec](LayerFactory& f) { return f.embedding(spec); });
}
std::shared_ptr<Norm> GuardedLayers::norm(const NormSpec& spec) {
  return make<Norm>(kNorm, spec, [spec](LayerFactory& f) { return f.norm(spec); });
}
std::shared_ptr<AttentionLayer> GuardedLayers::attention(const AttentionSpec& spec) {
  return make<AttentionLayer>(kAttention, spec, [spec](LayerFactory& f) { return f.attention(spec); });
}
std::shared_ptr<LmLoss> GuardedLayers::lm_loss(const LmLossSpec& spec) {
  return make<LmLoss>(kLmLoss, spec, [spec](LayerFactory& f) { return f.lm_loss(spec); });
}

std::shared_ptr<Router> GuardedLayers::router(const RouterSpec& spec) {
  return make<Router>(kRouter, spec, [spec](LayerFactory& f) { return f.router(spec); });
}
std::shared_ptr<Experts> GuardedLayers::experts(const ExpertsSpec& spec) {
  return make<Experts>(kExperts, spec, [spec](LayerFactory& f) { return f.experts(spec); });
}

// The model's own block has parameters that it made itself; a strategy's asks `layers` for those of the model.
UnitPtr GuardedLayers::block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) {
  std::optional<UnitPtr> models;  // where it is null, that is told where the chain is looked at
  const auto own = [&] { return models.emplace(plain()); };
  const PluginCall named{id_, "block", spec.name};
  PluginCall passing = named;
  passing.keeps_errors = true;
  UnitPtr unit = plugin_call(passing, [&] { return factory_->block(spec, layers, own); });
  if (unit && !models) note(unit->params());
  if (!unit && (!models || *models))
    plugin_call(named, [] { throw fail(ErrorCode::plugin, "returned null; wanted a unit, or what `plain` returns"); });
  return unit;
}

// Whether this level changed the last layer of the kind. The runtime's own factory decorates nothing.
bool GuardedLayers::decorates(Kind kind) const {
  if (!inside_) return false;
  const Made &own = made_.at(kind), &found = inside_->made_.at(kind);
  return own.layer != found.layer || own.trainable != found.trainable;
}

void GuardedLayers::check() {
  for (GuardedLayers* level = this; level; level = level->inside_.get())
    for (size_t k = 0; k < kKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      const Alone& alone = level->alone_.at(kind);
      if (!alone.ask_inside) continue;
      alone.ask_inside();
      for (const GuardedLayers* inner = level->inside_.get(); inner; inner = inner->inside_.get())
        if (inner->decorates(kind))
          throw fail(ErrorCode::plugin, level->id_, " makes the layer ", alone.layer, " itself and does not ask the ",
                     "factory inside (LayerFactory::", kCalls.at(kind), "), so that ", inner->id_,
                     ", which decorates it there, would be without effect. Take one of the two out of the ",
                     "configuration; a factory asks the one inside for this rank's part (drivetrain/layers.h)");
    }
}

}  // namespace drivetrain
