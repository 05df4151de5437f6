// The smallest adapter: every linear layer W becomes W + D, where D starts as zeros and everything else is frozen. It
// is what a strategy with parameters of its own has to be, without a format of anybody's. `mistake`: what it says
// wrongly.
#include <drivetrain/options.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/linear.h>

#include <ATen/core/Tensor.h>

#include <map>

namespace {

using namespace drivetrain;

// The layer's own parameters, which nobody trains, and one beside them.
class WithDelta final : public Linear {
 public:
  WithDelta(const LinearSpec& spec, std::shared_ptr<Linear> inner)
      : inner_(std::move(inner)),
        delta_(std::make_shared<Param>(spec.name + ".delta", weight_layout(spec), InitRule::zeros())) {
    delta_->role = ParamRole::adapter;
    for (const ParamPtr& param : inner_->params()) param->trainable = false;
  }
  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all = inner_->params();
    all.push_back(delta_);
    return all;
  }
  ParamPtr bias() const override { return inner_->bias(); }
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor*) const override {
    return inner_->apply(x, options, nullptr).add_(x.matmul(delta_->tensor.t()));
  }
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    at::Tensor dx = inner_->apply_backward(dy, x, options, work);
    if (options.wants_dx) dx.add_(dy.matmul(delta_->tensor));
    work.run([delta = delta_, dy, x] {
      accumulate_weight_grad(*delta, dy.reshape({-1, dy.size(-1)}), x.reshape({-1, x.size(-1)}));
    });
    return dx;
  }
  const ParamPtr& delta() const { return delta_; }

 private:
  const std::shared_ptr<Linear> inner_;
  const ParamPtr delta_;
};

using Deltas = std::map<std::string, ParamPtr>;  // by the name of the weight that they are added to

class AdaptedLayers final : public DecoratedLayers {
 public:
  AdaptedLayers(std::shared_ptr<LayerFactory> inner, Deltas& deltas, bool trains)
      : DecoratedLayers(std::move(inner)), deltas_(deltas), trains_(trains) {}

  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    const auto layer = std::make_shared<WithDelta>(spec, inner_->linear(spec));
    layer->delta()->trainable = trains_;
    deltas_[spec.name + ".weight"] = layer->delta();
    return layer;
  }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return frozen(inner_->embedding(spec)); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return frozen(inner_->norm(spec)); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return frozen(inner_->lm_loss(spec)); }

 private:
  template <class Made>
  static std::shared_ptr<Made> frozen(std::shared_ptr<Made> layer) {
    for (const ParamPtr& param : layer->params()) param->trainable = false;
    return layer;
  }

  Deltas& deltas_;
  const bool trains_;
};

struct AdapterOptions {
  bool exports = true;
  std::string from, mistake = "none";
};

class Adapter final : public Strategy {
 public:
  using Options = AdapterOptions;
  static OptionTable options() {
    return table<Options>()
        .field("exports", &Options::exports, "writes the model's own weights, too")
        .field("from", &Options::from, "a folder of deltas")
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "names_nothing", "names_one_twice", "leaves_the_folder", "lies_among_the_model", "freezes_all",
                 "merges_another_shape"});
  }
  Adapter(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext&) override {}
  void build(Builder& builder) override {
    builder.layers = std::make_shared<AdaptedLayers>(builder.layers, deltas_, !is("freezes_all"));
  }

  std::vector<WeightFolder> weight_folders() const override {
    WeightFolder folder;
    folder.name = options_.exports ? "deltas" : "", folder.from = options_.from;
    folder.weights_file = "deltas.safetensors", folder.config_file = "deltas.json";
    for (const auto& [weight, delta] : deltas_)
      folder.rules.rules.push_back({delta->name, {{weight, delta->layout.global_shape[0]}}, false});
    if (is("names_nothing")) folder.rules.rules.push_back({"block.9.delta", {{"nothing", 1}}, false});
    if (is("names_one_twice")) folder.rules.rules.push_back(folder.rules.rules.front());
    if (is("leaves_the_folder")) folder.name = "../deltas";
    if (is("lies_among_the_model")) folder.name = "";
    folder.rules.prefix = "base.", folder.rules.config = Value::Object{{"deltas", int64_t(deltas_.size())}};
    return {folder};
  }
  bool exports_model() const override { return options_.exports; }
  at::Tensor merge(const Param& param, const at::Tensor& value, const WholeParam& whole) const override {
    const auto found = deltas_.find(param.name);
    if (found == deltas_.end()) return value;
    const at::Tensor merged = value.add(whole(found->second->name));
    return is("merges_another_shape") ? merged.flatten() : merged;
  }

 private:
  bool is(const char* mistake) const { return options_.mistake == mistake; }

  const Options options_;
  Deltas deltas_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "adapter", Adapter)
