// A strategy whose norms add terms to the loss: the mean square of their inputs over the valid tokens. Right, but for
// the option "mistake".
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>

#include <any>
#include <limits>

#include <drivetrain/services.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>

namespace {

using namespace drivetrain;

struct TermOptions {
  double weight = 0.1;
  std::string mistake = "none";
  bool gain = false, half = false;
  int64_t not_finite_in_step = 0;
};

// [B, s]: 1 where the label of the position counts, of the positions that activations have here.
at::Tensor valid(StepContext& ctx) {
  Tensors columns;
  for (const RowRange& range : columns_of(ctx.activation_positions(), ctx.positions()))
    columns.push_back(ctx.batch().labels_BS.narrow(1, range.first, range.count));
  return at::cat(columns, 1).ge(0).to(at::kFloat);
}

class NormWithTerm : public Norm {
 public:
  NormWithTerm(std::shared_ptr<Norm> inner, const NormSpec& spec, const TermOptions& options)
      : inner_(std::move(inner)), options_(options), last_(spec.name.starts_with("block.2")) {
    if (options.gain)
      gain_ = std::make_shared<Param>(spec.name + ".gain", Layout::whole({spec.dim}), InitRule::normal(0.3));
  }
  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> list = inner_->params();
    if (gain_) list.push_back(gain_);
    return list;
  }
  at::Tensor forward(const at::Tensor& x, StepContext& ctx) override {
    if (ctx.batch().labels_BS.defined() && options_.weight != 0) add_terms(x, ctx);
    const at::Tensor y = inner_->forward(x, ctx);
    return gain_ ? y.mul(gain_->tensor.add(1)) : y;
  }

 private:
  void add_terms(const at::Tensor& x, StepContext& ctx) const {
    const at::Tensor mask = valid(ctx);
    at::Tensor value = x.to(at::kFloat).square().mean(-1).mul(mask).sum().div(mask.sum().clamp_min(1));
    if (options_.not_finite_in_step == ctx.step()) value = value.mul(std::numeric_limits<double>::quiet_NaN());
    if (options_.half) value = value.to(at::kHalf);
    double weight = options_.weight;
    if (options_.mistake == "a_little_more") weight *= 1.01;
    if (options_.mistake == "one_micro_batch" && ctx.visit().micro == 1) weight = 0;
    ctx.add_loss("square", value, weight);
    if (last_) ctx.add_loss("last", value, 0.5 * weight);
  }

  const std::shared_ptr<Norm> inner_;
  const TermOptions options_;
  const bool last_;
  ParamPtr gain_;
};

// A block whose input is multiplied by 1 + gain, by hand, with the mean square of the gain as a term: the parameter is
// the unit's own, of no layer that a factory made.
class ScaledBlock : public Unit {
 public:
  ScaledBlock(UnitPtr inner, int64_t dim, double weight)
      : Unit(inner->name()), inner_(std::move(inner)), weight_(weight) {
    gain_ = std::make_shared<Param>(name() + ".gain", Layout::whole({dim}), InitRule::normal(0.3));
  }
  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> list = inner_->params();
    list.push_back(gain_);
    return list;
  }
  bool is_block() const override { return true; }
  bool returns_summands() const override { return inner_->returns_summands(); }
  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) override {
    Kept kept;
    {
      const at::NoGradGuard no_grad;
      const at::Tensor value = gain_->tensor.square().mean();
      if (ctx.batch().labels_BS.defined() && weight_ != 0) kept.seed = ctx.add_loss("gain", value, weight_);
      saved.inputs = x;
    }
    at::Tensor scaled;
    {
      const at::NoGradGuard no_grad;
      scaled = x[0].mul(gain_->tensor.add(1));
    }
    kept.inner = std::make_shared<Saved>();
    const Tensors y = inner_->forward({scaled}, ctx, *kept.inner);
    saved.extra = std::move(kept);
    return y;
  }
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) override {
    const Kept& kept = std::any_cast<const Kept&>(saved.extra);
    const at::Tensor dx = inner_->backward(dy, ctx, *kept.inner)[0];
    const at::NoGradGuard no_grad;
    at::Tensor gradient = dx.mul(saved.inputs[0]).to(at::kFloat).flatten(0, 1).sum(0);
    if (kept.seed.defined())
      gradient = gradient.add(
          gain_->tensor.mul(2.0 / static_cast<double>(gain_->tensor.numel())).mul(kept.seed.to(at::kFloat)));
    accumulate_grad(*gain_, gradient);
    return {dx.mul(gain_->tensor.add(1))};
  }
  void backward_weight(StepContext& ctx, Saved& saved) override {
    inner_->backward_weight(ctx, *std::any_cast<const Kept&>(saved.extra).inner);
  }

 private:
  struct Kept {
    std::shared_ptr<Saved> inner;
    at::Tensor seed;
  };
  const UnitPtr inner_;
  const double weight_;
  ParamPtr gain_;
};

// The first norm of the first block, the second of the last: of two, the stages have one each.
class TermLayers : public DecoratedLayers {
 public:
  TermLayers(std::shared_ptr<LayerFactory> inner, const TermOptions& options)
      : DecoratedLayers(std::move(inner)), options_(options) {}
  std::shared_ptr<Norm> norm(const NormSpec& spec) override {
    std::shared_ptr<Norm> norm = inner_->norm(spec);
    if (spec.name != "block.0.norm1" && spec.name != "block.2.norm2") return norm;
    return std::make_shared<NormWithTerm>(std::move(norm), spec, options_);
  }
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override {
    UnitPtr block = inner_->block(spec, layers, plain);
    if (!options_.gain || spec.name != "block.1") return block;
    return std::make_shared<ScaledBlock>(std::move(block), spec.hidden, options_.weight);
  }

 private:
  const TermOptions options_;
};

class Terms : public Strategy {
 public:
  using Options = TermOptions;
  static OptionTable options() {
    return table<Options>()
        .field("weight", &Options::weight, "of the term; 0: none is added")
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "a_little_more", "one_micro_batch"})
        .field("gain", &Options::gain, "the norms have a parameter of their own")
        .field("half", &Options::half, "the value is in float16")
        .field("not_finite_in_step", &Options::not_finite_in_step, "the value is no number there; 0: nowhere");
  }
  Terms(const Options& options, const Services&) : options_(options) {}
  void build(Builder& builder) override { builder.layers = std::make_shared<TermLayers>(builder.layers, options_); }

 private:
  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "terms", Terms)
