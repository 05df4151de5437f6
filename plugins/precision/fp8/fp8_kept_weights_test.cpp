// keep_weights: a weight is cast once in a step, and nothing else changes.
#include <ATen/ops/equal.h>
#include <ATen/record_function.h>

#include <string_view>

#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/precision.h>

#include <drivetrain/testkit/precision/suite.h>
#include "support/plugin_under_test.h"
#include "support/train_threads.h"
#include "test_layer.h"

namespace drivetrain::test {
namespace {

Recipe kept(bool delayed = true) {
  Recipe recipe;
  recipe.delayed = delayed, recipe.keep_weights = true;
  return recipe;
}

at::Tensor some(int64_t columns, uint64_t seed) { return numbers({16, columns}, seed).to(at::kBFloat16); }

// Tensors of which the largest value is taken while it lives, as each cast by its own scale does once.
class MaximaTaken {
 public:
  MaximaTaken() {
    count = 0;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) {
                                           count += std::string_view(call.name()) == "aten::linalg_vector_norm";
                                           return std::unique_ptr<at::ObserverContext>();
                                         }).scopes({at::RecordScope::FUNCTION}));
  }
  ~MaximaTaken() { at::removeCallback(handle_); }
  MaximaTaken(const MaximaTaken&) = delete;
  static inline int count = 0;

 private:
  at::CallbackHandle handle_;
};

int maxima_of_a_step(const Layer& layer, int micro_batches) {
  const MaximaTaken taken;
  layer.scaling->step_begin();
  for (int micro = 0; micro < micro_batches; ++micro) {
    const at::Tensor x = some(32, 1), dy = some(48, 2);
    layer.forward(x);
    layer.backward(dy, x);
  }
  layer.scaling->step_end();
  return MaximaTaken::count;
}

// By its own largest value a tensor is read for each cast: x, W, dy and, transposed, W and x. What is remembered leaves
// x, W and dy, whose largest values the next step needs.
TEST(Fp8KeptWeights, are_read_once_in_a_step_of_several_micro_batches) {
  Recipe current;
  current.delayed = false;
  EXPECT_EQ(maxima_of_a_step(Layer(current), 3), 3 * 5);
  EXPECT_EQ(maxima_of_a_step(Layer(kept(false)), 3), 3 * 3 + 1);
  const Layer anew({}), keeps(kept());
  for (const int step : {1, 2}) {
    EXPECT_EQ(maxima_of_a_step(anew, 3), 3 * (step == 1 ? 5 : 3)) << step;
    EXPECT_EQ(maxima_of_a_step(keeps, 3), 3 * (step == 1 ? 3 : 2) + 1) << step;
  }
}

// Weights that are doubled have the same eight bits and another scale, if that is their own.
TEST(Fp8KeptWeights, are_those_of_the_step_and_not_of_the_next_or_of_an_evaluation) {
  for (const std::string name : {"delayed", "current", "blocks"}) {
    SCOPED_TRACE(name);
    Recipe recipe = kept(name == "delayed");
    recipe.blocks = name == "blocks";
    const Layer layer(recipe), twice(recipe);
    twice.weight->tensor.mul_(2);
    const at::Tensor x = some(32, 1), dy = some(48, 2), once_y = layer.forward(x), once_dx = layer.backward(dy, x),
                     twice_y = twice.forward(x), twice_dx = twice.backward(dy, x);
    layer.scaling->step_begin();
    layer.forward(x);
    layer.weight->tensor.mul_(2);
    EXPECT_TRUE(at::equal(layer.forward(x), once_y));
    EXPECT_TRUE(at::equal(layer.backward(dy, x), once_dx));
    layer.scaling->step_end();
    EXPECT_TRUE(at::equal(layer.forward(x), twice_y)) << "outside of a step";
    layer.scaling->step_begin();
    const at::Tensor next_dx = layer.backward(dy, x);
    layer.scaling->step_end();
    // What is remembered is the scale of the weights before, for which these are too large.
    EXPECT_EQ(at::equal(next_dx, twice_dx), !recipe.delayed);
    EXPECT_FALSE(at::equal(next_dx, once_dx));
  }
}

TEST(Fp8KeptWeights, give_a_run_the_same_bits) {
  const TempFolder folder;
  int number = 0;
  for (const std::string options : {"", R"(, "recipe": "Float8CurrentScaling")", R"(, "recipe": "Float8BlockScaling")"})
    for (const std::string more : {"", R"(, "activation_checkpointing": "full")"}) {
      SCOPED_TRACE(options + more);
      const auto run = [&](const std::string& keep) {
        return run_threads(
            precision_config(folder, concat("run", ++number),
                             R"("train_steps": 4, "gradient_accumulation_steps": 2, "fp8": {"enabled": true)" +
                                 options + keep + "}" + more),
            1);
      };
      const RunResult anew = run(""), keeps = run(R"(, "keep_weights": true)");
      ASSERT_EQ(anew.metrics.size(), 4u);
      for (size_t step = 0; step < anew.metrics.size(); ++step)
        for (const char* name : {"loss", "grad_norm"})
          EXPECT_EQ(figure(anew, step, name), figure(keeps, step, name)) << step << " " << name;
    }
}

struct OneLinear : Unit {
  explicit OneLinear(std::shared_ptr<Linear> layer) : Unit("block.0"), linear(std::move(layer)) {}
  std::vector<ParamPtr> params() const override { return linear->params(); }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
  std::shared_ptr<Linear> linear;
};

TEST(Fp8KeptWeights, are_two_bytes_for_each_number_of_layers_in_8_bits_in_the_plan) {
  for (const bool keep : {false, true}) {
    Host host;
    const auto plugin = make_plugin<Precision>(host, "fp8", keep ? R"({"keep_weights": true})" : "{}");
    const Mesh mesh({}, 0, 1, nullptr);
    const ModelFacts model;
    Builder builder(make_plain_layers(nullptr), nullptr, mesh, model);
    plugin->build(builder);
    LinearSpec spec;
    spec.name = "block.0.mlp.fc", spec.in = 32, spec.out = 48;
    UnitList units;
    units.units.push_back(std::make_shared<OneLinear>(builder.layers->linear(spec)));
    PlanRecord ctx(model, {});
    EXPECT_FALSE(plugin->plan_units(ctx, {units, mesh})) << "the storage owner says what is updated";
    double bytes = 0;
    for (const auto& part : ctx.memories()) bytes += part.bytes;
    EXPECT_EQ(bytes, keep ? 2 * 32 * 48 : 0);
  }
}

}  // namespace
}  // namespace drivetrain::test
