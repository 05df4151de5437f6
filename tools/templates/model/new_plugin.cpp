// A language model without attention: the next token from the current one, through residual MLP blocks.
//
// Layers come from the factory, which strategies decorate: so the model is cut over tensor-parallel ranks, sharded,
// pipelined and recomputed without knowing it. Between units goes {x [B, S, D]}.
#include <drivetrain/model.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/units/layer_unit.h>

#include <ATen/ops/gelu.h>

namespace {

using namespace drivetrain;

class NewPlugin : public Model {
 public:
  struct Options {
    int64_t num_layers = 2, hidden_size = 64, vocab_size = 256, max_position_embeddings = 1024;
  };
  static OptionTable options() {
    return table<Options>()
        .field("num_layers", &Options::num_layers, "number of blocks")
        .at_least(1)
        .field("hidden_size", &Options::hidden_size, "width of the stream between blocks")
        .at_least(1)
        .field("vocab_size", &Options::vocab_size, "number of tokens")
        .at_least(2)
        .field("max_position_embeddings", &Options::max_position_embeddings, "longest sequence that is asked for")
        .at_least(1);
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  ModelFacts facts() const override {
    const auto& [L, D, V, P] = options_;
    ModelFacts f;
    f.num_layers = L, f.hidden_size = D, f.vocab_size = V, f.max_position_embeddings = P, f.ffn_hidden_size = 4 * D;
    f.parameters = 2 * V * D + L * (8 * D * D + 7 * D);
    f.flops_per_token_fixed = 6.0 * static_cast<double>(V * D + 8 * L * D * D);
    f.flops_formula = "6 per parameter of a matrix product";
    return f;
  }
  void plan(PlanContext& ctx) override { ctx.capturable(); }

  // Once, the same on every rank. Parameters have names that no topology changes, and no memory yet.
  std::vector<UnitPtr> build(LayerFactory& layers) override {
    const InitRule init = InitRule::normal(0.02);
    const int64_t D = options_.hidden_size, V = options_.vocab_size;
    const auto word = layers.embedding({"embedding.word", V, D, init, true, {}});
    std::vector<UnitPtr> units = {make_layer_unit(
        "embedding", {word}, [=](const Tensors& x, StepContext& ctx) { return Tensors{word->forward(x[0], ctx)}; })};
    for (int64_t i = 0; i < options_.num_layers; ++i) units.push_back(block(concat("block.", i), init, layers));
    const auto loss = layers.lm_loss({"head", V, D, nullptr, init, {}});
    units.push_back(make_layer_unit("head", {loss}, [=](const Tensors& x, StepContext& ctx) {
      return Tensors{loss->forward(sum_of_stream(x), ctx)};
    }));
    return units;
  }

  // Multiply-adds per token; the embedding only moves numbers.
  double cost(const Unit& unit) const override {
    const auto D = static_cast<double>(options_.hidden_size);
    return unit.name() == "embedding" ? D : unit.is_block() ? 8 * D * D : D * static_cast<double>(options_.vocab_size);
  }

  // Where each parameter stands in a folder of weights: here under its own name, whole.
  WeightRules weight_rules(const std::string& format) const override {
    if (format != "hf") throw fail(ErrorCode::config, "model/new_plugin knows the format \"hf\", not \"", format, "\"");
    const int64_t D = options_.hidden_size;
    WeightRules made;
    const auto add = [&](const std::string& name, int64_t rows) { made.rules.push_back({name, {{name, rows}}}); };
    add("embedding.word.weight", options_.vocab_size), add("head.weight", options_.vocab_size);
    for (int64_t i = 0; i < options_.num_layers; ++i)
      for (const auto& [name, rows] : {std::pair{"norm", D}, {"fc", 4 * D}, {"proj", D}})
        for (const char* part : {".weight", ".bias"}) add(concat("block.", i, ".", name, part), rows);
    made.config = options().to_value(&options_);
    made.config.set("model_type", "new_plugin");
    return made;
  }

 private:
  // x + proj(gelu(fc(norm(x)))): of the two products the first may be cut by columns, the second by rows.
  UnitPtr block(const std::string& name, const InitRule& init, LayerFactory& layers) const {
    const int64_t D = options_.hidden_size, F = 4 * D;
    const auto norm = layers.norm({name + ".norm", D});
    const auto fc = layers.linear({name + ".fc", D, F, Split::columns, true, {}, init, {}, {}});
    const auto proj = layers.linear({name + ".proj", F, D, Split::rows, true, {}, init, {}, {}});
    return make_layer_block(name, {norm, fc, proj}, [=](const Tensors& in, StepContext& ctx) {
      const at::Tensor x = sum_of_stream(in), inner = at::gelu(fc->forward(norm->forward(x, ctx), ctx));
      return Tensors{proj->forward(inner, ctx).add_(x)};
    });
  }

  const Options options_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Model, "new_plugin", NewPlugin)
