// Parameters and activations in bfloat16, with a mistake that can be asked for.
#include <drivetrain/precision.h>

#include <ATen/TensorOperators.h>

#include <atomic>

namespace {

using namespace drivetrain;

class SpoiledLinear : public Linear {
 public:
  SpoiledLinear(std::shared_ptr<Linear> inner, bool draws) : inner_(std::move(inner)), draws_(draws) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  ParamPtr bias() const override { return inner_->bias(); }
  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    static std::atomic<uint64_t> drawn = 0;  // over all runs
    const at::Tensor y = inner_->apply(x, options, kept);
    if (draws_) return y * (1 + 0.02 * static_cast<double>(++drawn % 5));
    return y.abs().log2().floor().exp2() * y.sign();
  }
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    return inner_->apply_backward(dy, x, options, work);
  }

 private:
  const std::shared_ptr<Linear> inner_;
  const bool draws_;
};

class SpoiledLayers : public LayerFactory {
 public:
  SpoiledLayers(std::shared_ptr<LayerFactory> inner, bool draws) : inner_(std::move(inner)), draws_(draws) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    return std::make_shared<SpoiledLinear>(inner_->linear(spec), draws_);
  }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return inner_->embedding(spec); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return inner_->norm(spec); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override { return inner_->attention(spec); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return inner_->lm_loss(spec); }
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override {
    return inner_->block(spec, layers, plain);
  }

 private:
  const std::shared_ptr<LayerFactory> inner_;
  const bool draws_;
};

class Mistaken : public Precision {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "masters_of_16_bits", "keeps_exponents_only", "draws_its_roundings", "scales_out_of_range"});
  }
  Mistaken(const Options& options, const Services&) : mistake_(options.mistake) {}

  Dtypes dtypes() const override {
    return {at::kBFloat16, at::kFloat, at::kFloat, is("masters_of_16_bits") ? at::kBFloat16 : at::kFloat};
  }
  std::optional<LossScaling> loss_scaling() const override {
    if (!is("scales_out_of_range")) return std::nullopt;
    LossScaling scaling;
    scaling.dynamic = false, scaling.initial = 0x1p140;  // every update has gradients that are not finite
    return scaling;
  }
  void build(Builder& builder) override {
    if (is("keeps_exponents_only") || is("draws_its_roundings"))
      builder.layers = std::make_shared<SpoiledLayers>(builder.layers, is("draws_its_roundings"));
  }

 private:
  bool is(const char* mistake) const { return mistake_ == mistake; }
  const std::string mistake_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Precision, "mistaken", Mistaken)
