// strategy/fused_block: the suite, what it leaves to the model, what it says, 16 bits.
#include "conformance/fused_block_suite.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

// Keeps what the policy says, nothing less.
std::unique_ptr<Strategy> fused(const Host& host) {
  return make_plugin<Strategy>(host, "fused_block", R"({"recompute_cheap": false})");
}

TEST(FusedBlock, does_what_every_fused_block_must_do) { run_fused_block_suite(fused); }

TEST(FusedBlock, recompute_cheap_changes_no_bit) {
  const auto cheap = [](const Host& host) { return make_plugin<Strategy>(host, "fused_block"); };
  const TrainedOnce wanted = train_once(fused, at::kFloat), found = train_once(cheap, at::kFloat);
  expect_same_bits(found.pass.outputs, wanted.pass.outputs, "output");
  expect_same_bits(found.pass.gradients, wanted.pass.gradients, "gradient");
  expect_same_bits(found.slots, wanted.slots);
}

// Adapters, say: a matrix of three parameters.
struct ThreeParams : Linear {
  explicit ThreeParams(std::shared_ptr<Linear> inner) : inner(std::move(inner)) {}
  std::vector<ParamPtr> params() const override {
    auto all = inner->params();
    while (all.size() < 3) all.push_back(std::make_shared<Param>("more", Layout::whole({1}), InitRule::zeros()));
    return all;
  }
  at::Tensor forward(const at::Tensor& x, StepContext& ctx) override { return inner->forward(x, ctx); }
  std::shared_ptr<Linear> inner;
};

struct Decorated : LayerFactory {
  Decorated(std::shared_ptr<LayerFactory> inner, std::string name) : inner(std::move(inner)), name(std::move(name)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    const auto made = inner->linear(spec);
    return spec.name == name ? std::make_shared<ThreeParams>(made) : made;
  }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return inner->embedding(spec); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return inner->norm(spec); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override { return inner->attention(spec); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return inner->lm_loss(spec); }
  std::shared_ptr<LayerFactory> inner;
  std::string name;
};

TEST(FusedBlock, leaves_blocks_of_decorated_layers_to_the_model_and_says_so) {
  const Host host;
  const auto strategy = fused(host);
  const Chain chain(block_model(""), strategy.get(), [](Builder& builder) {
    builder.layers = std::make_shared<Decorated>(builder.layers, "block.1.mlp.fc");
  });
  EXPECT_EQ(host.log.lines, (std::vector<std::string>{
                                "strategy/fused_block: computes 1 of 2 blocks",
                                "strategy/fused_block: leaves block.1 to the model: mlp.fc is not a plain layer"}));
  EXPECT_EQ(chain.units.units[2]->params().size(), 13u);
}

TEST(FusedBlock, says_how_many_blocks_it_computes) {
  const Host host;
  const auto strategy = fused(host);
  const Chain chain(block_model(""), strategy.get());
  EXPECT_EQ(host.log.lines, std::vector<std::string>{"strategy/fused_block: computes 2 of 2 blocks"});
}

struct Nobody : Unit {
  Nobody() : Unit("nobody") {}
  std::vector<ParamPtr> params() const override { return {}; }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
};

TEST(FusedBlock, gives_reasons_for_shapes_it_does_not_know) {
  const std::pair<std::function<void(BlockSpec&)>, std::string> cases[] = {
      {[](BlockSpec& s) { s.activation = "relu"; },
       "leaves b to the model: activation relu is not known: use gelu_tanh, gelu or swiglu"},
      {[](BlockSpec& s) { s.kv_heads = 3; }, "leaves b to the model: 3 key/value heads do not divide 4 heads"},
      {[](BlockSpec& s) { s.rotary = true, s.rotary_frequencies = {1}; },
       "leaves b to the model: there are 1 rotary frequencies for a head size of 4"}};
  for (const auto& [change, message] : cases) {
    const Host host;
    const auto strategy = fused(host);
    const Mesh mesh({}, 0, 1, nullptr);
    const ModelFacts facts;
    Builder builder{nullptr, nullptr, mesh, facts};
    builder.layers = make_plain_layers(builder.attention);
    strategy->build(builder);
    BlockSpec spec;
    spec.name = "b", spec.hidden = 8, spec.ffn = 8, spec.heads = spec.kv_heads = 4, spec.head_dim = 4,
    spec.activation = "gelu";
    change(spec);
    const UnitPtr plain = std::make_shared<Nobody>();
    EXPECT_EQ(builder.layers->block(spec, [&] { return plain; }), plain);
    UnitList none;
    strategy->attach(none);
    EXPECT_EQ(host.log.lines, (std::vector<std::string>{"strategy/fused_block: computes 0 of 1 blocks",
                                                        "strategy/fused_block: " + message}));
  }
}

TEST(FusedBlock, says_when_it_is_not_asked) {
  const Host host;
  UnitList none;
  fused(host)->attach(none);
  EXPECT_EQ(host.log.lines,
            std::vector<std::string>{
                "strategy/fused_block: no block is left for it; another plugin answers them, or the model has none"});
}

struct LevelsLog : LinesLog {
  void write(LogLevel level, const std::string&) override { levels.push_back(level); }
  std::vector<LogLevel> levels;
};

TEST(FusedBlock, whispers_where_standard_output_is_a_sample) {
  LevelsLog log;
  NoStore store;
  const Host host{.log = {}, .store = {}, .services = {.log = log, .store = store}};
  const auto strategy = fused(host);
  for (const bool training : {true, false}) {
    RunFacts run;
    run.training = training;
    PlanContext context({}, run);
    context.speaker("strategy/fused_block");
    strategy->plan(context);
    EXPECT_EQ(context.capturables(), std::vector<std::string>{"strategy/fused_block"});
    UnitList none;
    strategy->attach(none);
  }
  EXPECT_EQ(log.levels, (std::vector<LogLevel>{LogLevel::info, LogLevel::debug}));
}

TEST(FusedBlock, sixteen_bits_are_near_float64) {
  Chain exact(block_model(""), nullptr), rounded(block_model(""), fused(Host{}).get());
  exact.fill(at::kDouble), rounded.fill(at::kBFloat16);
  exact.set_batch(2, 5), rounded.set_batch(2, 5);
  const PassResult wanted = exact.forward_and_backward(), found = rounded.forward_and_backward();
  EXPECT_EQ(found.outputs[1].scalar_type(), at::kBFloat16);
  for (size_t i = 0; i < wanted.outputs.size(); ++i)
    expect_near(found.outputs[i], wanted.outputs[i], 0.05, concat("output ", i));
  for (size_t i = 0; i < wanted.gradients.size(); ++i)
    expect_near(found.gradients[i], wanted.gradients[i], 0.1, concat("gradient ", i));
}

}  // namespace
}  // namespace drivetrain
