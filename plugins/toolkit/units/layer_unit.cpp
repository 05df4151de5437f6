#include <drivetrain/toolkit/units/layer_unit.h>

#include <ATen/ops/add.h>

#include <utility>

#include <drivetrain/toolkit/units/autograd_unit.h>

namespace drivetrain {
namespace {

class LayerUnit final : public AutogradUnit {
 public:
  LayerUnit(const std::string& name, const std::vector<std::shared_ptr<Layer>>& layers, UnitForward run, bool is_block)
      : AutogradUnit(name), run_(std::move(run)), is_block_(is_block) {
    for (const std::shared_ptr<Layer>& layer : layers)
      if (layer)
        for (const ParamPtr& param : layer->params()) params_.push_back(param);
  }
  std::vector<ParamPtr> params() const override { return params_; }
  bool is_block() const override { return is_block_; }
  Tensors run(const Tensors& x, StepContext& ctx) override { return run_(x, ctx); }

 private:
  const UnitForward run_;
  const bool is_block_;
  std::vector<ParamPtr> params_;
};

}  // namespace

UnitPtr make_layer_unit(const std::string& name, const std::vector<std::shared_ptr<Layer>>& layers, UnitForward run) {
  return std::make_shared<LayerUnit>(name, layers, std::move(run), false);
}

UnitPtr make_layer_block(const std::string& name, const std::vector<std::shared_ptr<Layer>>& layers, UnitForward run) {
  return std::make_shared<LayerUnit>(name, layers, std::move(run), true);
}

at::Tensor sum_of_stream(const Tensors& x) { return x.size() == 1 ? x[0] : at::add(x[0], x[1]); }

}  // namespace drivetrain
