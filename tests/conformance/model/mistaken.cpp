// Scales the embedded tokens and gives the loss. An option asks for a mistake, which the suite of models has to find.
#include <drivetrain/attention.h>
#include <drivetrain/model.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/units/differentiable.h>
#include <drivetrain/toolkit/units/layer_unit.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <atomic>

namespace {

using namespace drivetrain;

constexpr int64_t kVocabulary = 11, kWidth = 4;

// x * weight, with a backward by hand.
class Scale : public Layer {
 public:
  Scale(const std::string& name, const std::string& mistake)
      : mistake_(mistake),
        weight_(std::make_shared<Param>(name + ".weight", Layout::whole({kWidth}), InitRule::ones())) {}
  std::vector<ParamPtr> params() const override { return {weight_}; }
  at::Tensor forward(const at::Tensor& x) const {
    return differentiable(
        {x, weight_->tensor}, [](const Tensors& in) { return Tensors{in[0] * in[1]}; },
        [this, x = x.detach(), w = weight_](const Tensors& dy) {
          write(*w, (dy[0] * x).sum(at::IntArrayRef{0, 1}));
          return Tensors{dy[0] * w->tensor.detach(), {}};
        })[0];
  }

 private:
  void write(Param& param, const at::Tensor& gradient) const {
    if (mistake_ == "overwrites_a_gradient") {
      param.write_grad().slot.copy_(gradient);
    } else if (mistake_ == "forgets_a_gradient") {
      accumulate_grad(param, at::zeros_like(gradient));
    } else if (param.trainable || mistake_ == "writes_where_nothing_is_trained") {
      accumulate_grad(param, gradient);
    }
  }
  const std::string mistake_;
  const ParamPtr weight_;
};

class Mistaken : public Model {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "numbers_its_objects", "has_two_units_of_a_name", "costs_less_than_nothing", "shares_a_name",
                 "counts_a_parameter_more", "gives_the_mean", "forgets_a_gradient", "overwrites_a_gradient",
                 "counts_its_calls", "writes_where_nothing_is_trained", "does_not_evaluate", "gives_no_logits",
                 "hands_on_behind_the_runtime", "computes_in_float32", "forgets_a_rule", "miscounts_rows",
                 "starts_absent_rows_twice", "knows_every_format"});
  }
  // As models that wrap others do, it asks for a plugin.
  Mistaken(const Options& options, const Services& services)
      : mistake_(options.mistake), wrapped_(services.plugins->create<Attention>({"standard", Value::object()})) {}

  ModelFacts facts() const override {
    ModelFacts f;
    f.num_layers = 1, f.hidden_size = kWidth, f.vocab_size = kVocabulary, f.max_position_embeddings = 64;
    f.parameters = 2 * kVocabulary * kWidth + 2 * kWidth + (is("counts_a_parameter_more") ? 1 : 0);
    f.flops_formula = "none";
    return f;
  }

  std::vector<UnitPtr> build(LayerFactory& layers) override {
    const InitRule init = InitRule::normal(0.1);
    const auto word = layers.embedding({"word", kVocabulary, kWidth, init, true});
    const auto first = std::make_shared<Scale>("first", mistake_);
    const auto second = std::make_shared<Scale>(is("shares_a_name") ? "first" : "second", mistake_);
    const auto loss = layers.lm_loss({"head", kVocabulary, kWidth, nullptr, init});
    static std::atomic<int> objects = 0;
    const std::string name = is("numbers_its_objects") ? concat("embedding", ++objects) : "embedding";
    const auto embed = [=](const Tensors& x, StepContext& ctx) { return Tensors{word->forward(x[0], ctx)}; };
    return {make_layer_unit(name, {word}, embed), make_layer_block("block", {first, second}, block(first, second)),
            make_layer_unit(is("has_two_units_of_a_name") ? "block" : "head", {loss}, head(loss))};
  }

  double cost(const Unit&) const override { return is("costs_less_than_nothing") ? -1 : 1; }

  WeightRules weight_rules(const std::string& format) const override {
    if (format != "hf" && !is("knows_every_format")) throw fail(ErrorCode::config, "no format ", format);
    WeightRules made;
    WeightPart first{"word.weight", 4}, rest{"word.weight", kVocabulary - 4, true, 4};
    if (is("starts_absent_rows_twice")) rest.absent = AbsentRows::mean;
    made.rules = {{"word.weight", {first, rest}},
                  {"first.weight", {{"first.weight", is("miscounts_rows") ? 2 * kWidth : kWidth}}},
                  {"head.weight", {{"head.weight", kVocabulary}}}};
    if (!is("forgets_a_rule")) made.rules.push_back({"second.weight", {{"second.weight", kWidth}}});
    made.config = Value::Object{{"model_type", "mistaken"}};
    return made;
  }

 private:
  bool is(const char* mistake) const { return mistake_ == mistake; }

  UnitForward block(const std::shared_ptr<Scale>& first, const std::shared_ptr<Scale>& second) {
    return [=, this](const Tensors& in, StepContext& ctx) {
      at::Tensor x = second->forward(first->forward(in[0]));
      if (is("counts_its_calls")) x = x * (1 + 1e-3 * static_cast<double>(++calls_));
      if (is("does_not_evaluate") && ctx.mode() == Mode::evaluate) x = x * 2;
      if (is("hands_on_behind_the_runtime")) kept_ = x.detach();
      return Tensors{is("computes_in_float32") ? x.to(at::kFloat) : x};
    };
  }
  UnitForward head(const std::shared_ptr<LmLoss>& loss) {
    return [=, this](const Tensors& in, StepContext& ctx) {
      at::Tensor x = in[0];
      if (kept_.defined()) x = x + kept_;
      if (is("computes_in_float32")) x = x.to(loss->params()[0]->tensor.scalar_type());
      const at::Tensor& labels = ctx.batch().labels_BS;
      if (is("gives_no_logits") && !labels.defined()) return Tensors{x};
      const at::Tensor sum = loss->forward(x, ctx);
      return Tensors{is("gives_the_mean") && labels.defined() ? sum / static_cast<double>(labels.numel()) : sum};
    };
  }

  const std::string mistake_;
  const std::shared_ptr<Attention> wrapped_;
  at::Tensor kept_;
  int64_t calls_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Model, "mistaken", Mistaken)
