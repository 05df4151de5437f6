// Low-rank adapters beside frozen weights. See README.md.
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <string>
#include <utility>

#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/linear.h>

namespace {

using namespace drivetrain;

at::Tensor rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }
void add_axes(std::vector<std::string>& to, const DimSplit& split) {
  to.insert(to.end(), split.axes.begin(), split.axes.end());
}

class AdaptedLinear : public Linear {
 public:
  AdaptedLinear(std::shared_ptr<Linear> inner, const LinearSpec& spec, int64_t rank, double scale)
      : inner_(std::move(inner)), scale_(scale) {
    const Layout weight = weight_layout(spec);
    const int64_t out = weight.global_shape[0], in = weight.global_shape[1];
    Layout a = Layout::whole({rank, in}), b = Layout::whole({out, rank});
    a.partial_over = b.partial_over = weight.partial_over;
    if (!weight.dims.empty()) {
      a.dims = {{}, weight.dims[1]}, b.dims = {weight.dims[0], {}};
      add_axes(a.partial_over, weight.dims[0]), add_axes(b.partial_over, weight.dims[1]);
    }
    a_ = std::make_shared<Param>(spec.name + ".lora_A", a, InitRule::uniform(1 / std::sqrt(static_cast<double>(in))));
    b_ = std::make_shared<Param>(spec.name + ".lora_B", b, InitRule::zeros());
    a_->role = b_->role = ParamRole::adapter;
  }
  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all = inner_->params();
    return all.push_back(a_), all.push_back(b_), all;
  }
  ParamPtr bias() const override { return inner_->bias(); }
  bool keeps_input() const override { return inner_->keeps_input(); }

  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    const at::NoGradGuard no_grad;
    at::Tensor y = inner_->apply(x, options, kept);
    const at::Tensor u = product(rows(x), a_->tensor.detach()).mul_(scale_);
    return y.add_(product(u, b_->tensor.detach()).view(y.sizes()));
  }
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const at::NoGradGuard no_grad;
    at::Tensor dx = inner_->apply_backward(dy, x, options, work);
    const at::Tensor v = product_backward(rows(dy), b_->tensor.detach()).mul_(scale_);
    if (dx.defined()) dx.add_(product_backward(v, a_->tensor.detach()).view(dx.sizes()));
    // The work may run when the values of A are gone, and x may be read there only.
    const at::Tensor a = work.puts_off() ? a_->tensor.detach().clone() : a_->tensor.detach();
    work.run([=, a_param = a_, b_param = b_, scale = scale_] {
      accumulate_weight_grad(*a_param, v, rows(x));
      accumulate_weight_grad(*b_param, rows(dy), product(rows(x), a).mul_(scale));
    });
    return dx;
  }

  const ParamPtr& a() const { return a_; }
  const ParamPtr& b() const { return b_; }

 private:
  const std::shared_ptr<Linear> inner_;
  const double scale_;
  ParamPtr a_, b_;
};

struct Options {
  int64_t rank = 8;
  double alpha = 16;
};
using Made = std::vector<std::shared_ptr<AdaptedLinear>>;

class AdaptedLayers : public DecoratedLayers {
 public:
  AdaptedLayers(std::shared_ptr<LayerFactory> inner, const Options& options, std::shared_ptr<Made> made)
      : DecoratedLayers(std::move(inner)), options_(options), made_(std::move(made)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    const double scale = options_.alpha / static_cast<double>(options_.rank);
    made_->push_back(std::make_shared<AdaptedLinear>(frozen(inner_->linear(spec)), spec, options_.rank, scale));
    return made_->back();
  }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return frozen(inner_->embedding(spec)); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return frozen(inner_->norm(spec)); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return frozen(inner_->lm_loss(spec)); }

 private:
  template <class L>
  std::shared_ptr<L> frozen(std::shared_ptr<L> layer) const {
    for (const ParamPtr& param : layer->params()) param->trainable = false;
    return layer;
  }
  const Options options_;
  const std::shared_ptr<Made> made_;
};

class SmallLora : public Strategy {
 public:
  using Options = ::Options;
  static OptionTable options() {
    return table<Options>()
        .field("rank", &Options::rank, "rows of A and columns of B")
        .at_least(1)
        .field("alpha", &Options::alpha, "adapters count alpha / rank times");
  }
  SmallLora(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext& ctx) override { ctx.capturable(); }
  void build(Builder& builder) override {
    builder.layers = std::make_shared<AdaptedLayers>(builder.layers, options_, made_);
  }

  std::vector<WeightFolder> weight_folders() const override {
    WeightFolder folder;
    folder.name = "adapter", folder.weights_file = "adapter.safetensors", folder.config_file = "adapter.json";
    for (const auto& layer : *made_)
      for (const ParamPtr& param : {layer->a(), layer->b()})
        folder.rules.rules.push_back({param->name, {{param->name, param->layout.global_shape[0]}}, false});
    folder.rules.config = Value::Object{{"rank", options_.rank}, {"alpha", options_.alpha}};
    return {folder};
  }

  at::Tensor merge(const Param& param, const at::Tensor& value, const WholeParam& whole) const override {
    for (const auto& layer : *made_)
      if (layer->params().front()->name == param.name)
        return value.addmm(whole(layer->b()->name), whole(layer->a()->name), 1,
                           options_.alpha / static_cast<double>(options_.rank));
    return value;
  }

 private:
  const Options options_;
  const std::shared_ptr<Made> made_ = std::make_shared<Made>();
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "small_lora", SmallLora)
