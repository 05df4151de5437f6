// Experts with a mistake that can be asked for, as a strategy inside of the one that splits them: what the runs of
// runs_test.cpp must find.
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>

#include <drivetrain/services.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace {

using namespace drivetrain;

// `dropped`: no expert computes with more than 8 rows at a time. `averaged`: gradients as if they were means over two
// ranks.
class MistakenExperts : public Experts {
 public:
  MistakenExperts(std::shared_ptr<Experts> inner, std::string mistake)
      : inner_(std::move(inner)), mistake_(std::move(mistake)) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) override {
    if (mistake_ == "dropped") return inner_->forward(x, counts.clamp(0, 8), ctx);
    const at::Tensor y = inner_->forward(x, counts, ctx);
    return differentiable(
        {y}, [](const Tensors& in) { return Tensors{in[0].clone()}; },
        [averaged = mistake_ == "averaged"](const Tensors& dy) { return Tensors{averaged ? dy[0] / 2 : dy[0]}; })[0];
  }

 private:
  const std::shared_ptr<Experts> inner_;
  const std::string mistake_;
};

class MistakenLayers : public DecoratedLayers {
 public:
  MistakenLayers(std::shared_ptr<LayerFactory> inner, std::string mistake)
      : DecoratedLayers(std::move(inner)), mistake_(std::move(mistake)) {}
  std::shared_ptr<Experts> experts(const ExpertsSpec& spec) override {
    return std::make_shared<MistakenExperts>(inner_->experts(spec), mistake_);
  }

 private:
  const std::string mistake_;
};

class Mistaken : public Strategy {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>().field("mistake", &Options::mistake, "which").one_of({"none", "dropped", "averaged"});
  }
  Mistaken(const Options& options, const Services&) : mistake_(options.mistake) {}
  void build(Builder& builder) override { builder.layers = std::make_shared<MistakenLayers>(builder.layers, mistake_); }

 private:
  const std::string mistake_;
};

}  // namespace

DRIVETRAIN_PLUGIN(Strategy, "mistaken_experts", Mistaken)
