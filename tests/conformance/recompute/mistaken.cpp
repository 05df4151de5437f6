// A recompute policy that recomputes every block, with a mistake that can be asked for. Its attention layers draw
// random numbers of their own, so that there is something to draw differently.
#include <drivetrain/toolkit/recompute/recompute_blocks.h>

#include <ATen/TensorOperators.h>

namespace {

using namespace drivetrain;

struct Options {
  bool recompute = true;
  std::string region;  // empty: whole blocks
  std::string mistake = "none";
};

class NoisyAttention : public AttentionLayer {
 public:
  NoisyAttention(std::shared_ptr<AttentionLayer> inner, std::string name, bool other_numbers)
      : inner_(std::move(inner)), name_(std::move(name)), other_numbers_(other_numbers) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  AttentionArgs args(StepContext& ctx) const override { return inner_->args(ctx); }
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, StepContext& ctx) override {
    const at::Tensor out = inner_->forward(q, k, v, ctx);
    if (ctx.mode() != Mode::train) return out;
    RandomKey key = ctx.random(name_ + ".noise");
    if (other_numbers_ && ctx.visit().direction == Direction::backward) ++key.step;
    return dropout(out, 0.1, key);
  }

 private:
  const std::shared_ptr<AttentionLayer> inner_;
  const std::string name_;
  const bool other_numbers_;
};

class NoisyLayers : public LayerFactory {
 public:
  NoisyLayers(std::shared_ptr<LayerFactory> inner, bool other_numbers)
      : inner_(std::move(inner)), other_numbers_(other_numbers) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override { return inner_->linear(spec); }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return inner_->embedding(spec); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return inner_->norm(spec); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return inner_->lm_loss(spec); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override {
    return std::make_shared<NoisyAttention>(inner_->attention(spec), spec.name, other_numbers_);
  }

 private:
  const std::shared_ptr<LayerFactory> inner_;
  const bool other_numbers_;
};

class OtherInputs : public Held {
 public:
  explicit OtherInputs(Tensors inputs) : inputs_(std::move(inputs)) {}
  Tensors restore() override {
    for (at::Tensor& t : inputs_) t = t.detach() * 1.001;
    return std::move(inputs_);
  }

 private:
  Tensors inputs_;
};

class Mistaken : public Recompute {
 public:
  using Options = ::Options;
  static OptionTable options() {
    return table<Options>()
        .field("recompute", &Options::recompute, "false: everything is kept")
        .field("region", &Options::region, "what runs again; empty: blocks")
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "other_numbers", "other_inputs"});
  }
  Mistaken(const Options& options, const Services&) : options_(options) {}

  void build(Builder& builder) override {
    builder.layers = std::make_shared<NoisyLayers>(builder.layers, options_.mistake == "other_numbers");
  }
  Keep keep(const Region& region) const override {
    return options_.recompute && region.unit.rfind("block.", 0) == 0 && region.name == options_.region ? Keep::input
                                                                                                       : Keep::all;
  }
  std::unique_ptr<Held> hold(Tensors inputs) const override {
    if (options_.mistake == "other_inputs") return std::make_unique<OtherInputs>(std::move(inputs));
    return Recompute::hold(std::move(inputs));
  }

 private:
  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Recompute, "mistaken", Mistaken)
