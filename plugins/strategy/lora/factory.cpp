#include "factory.h"

#include <utility>

#include <drivetrain/error.h>

namespace drivetrain::lora {

std::shared_ptr<Linear> AdaptedLayers::linear(const LinearSpec& spec) {
  const Layout whole = weight_layout(spec);
  std::shared_ptr<Linear> layer = frozen(inner_->linear(spec));
  const std::vector<Wish> wishes = targets_->of_linear(spec.name, whole.global_shape[0], whole.global_shape[1]);
  if (wishes.empty()) return layer;
  const std::vector<ParamPtr> params = layer->params();
  if (params.empty() || params.front()->layout != whole || layer->keeps_input())
    throw fail(ErrorCode::plugin, "strategy/lora: the layer ", spec.name,
               " inside is cut or changed in another way than "
               "its LinearSpec says; put the plugin that does so outside of lora");
  Made::Adapted made{params.front(), nullptr, {}};
  try {
    for (const Wish& wish : wishes) made.adapters.push_back(make_adapter(spec, wish, options_.gaussian(), mesh_));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::config) throw;
    return targets_->add_problem(e.what()), layer;
  }
  made.layer = std::make_shared<AdaptedLinear>(std::move(layer), made.adapters, *options_.dropout);
  made_->layers.push_back(made);
  return made.layer;
}

}  // namespace drivetrain::lora
