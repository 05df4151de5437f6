// The conformance suite of strategies that make blocks finds what it is there for: strategy/fused_block passes it, and
// does not with any one mistake round about its blocks.
#include "support/mistakes.h"

#include <ATen/TensorOperators.h>

#include <algorithm>

#include <drivetrain/testkit/strategy/suite.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

namespace drivetrain::test {
namespace {

// Answers for a batch whose columns are all positions.
struct WithoutPositions : StepContext {
  explicit WithoutPositions(StepContext& inner) : inner(inner), batch_(inner.batch()) { batch_.positions.clear(); }
  int64_t step() const override { return inner.step(); }
  Mode mode() const override { return inner.mode(); }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return inner.visit(); }
  std::span<const Visit> ahead() const override { return inner.ahead(); }
  RandomKey random(std::string_view site) const override { return inner.random(site); }
  Keep keep(std::string_view region) const override { return inner.keep(region); }
  at::Tensor add_loss(const std::string& name, const at::Tensor& value, double weight) override {
    return inner.add_loss(name, value, weight);
  }
  void metric(const std::string& name, const at::Tensor& scalar) override { inner.metric(name, scalar); }
  StepContext& inner;
  Batch batch_;
};

class SpoiledBlock : public Unit {
 public:
  SpoiledBlock(UnitPtr inner, std::string mistake)
      : Unit(inner->name()), inner_(std::move(inner)), mistake_(std::move(mistake)) {}
  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all = inner_->params();
    if (is("lists_parameters_backwards")) std::reverse(all.begin(), all.end());
    return all;
  }
  bool returns_summands() const override { return inner_->returns_summands(); }
  bool is_block() const override { return inner_->is_block(); }
  std::optional<UnitKeeps> keeps() const override { return inner_->keeps(); }

  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) override {
    WithoutPositions whole(ctx);
    Tensors y = inner_->forward(x, is("ignores_positions") ? whole : ctx, saved);
    if (is("another_output") || (is("depends_on_what_is_kept") && ctx.keep("mlp.act") != Keep::all) ||
        (is("wants_summands") && x.size() == 1 && name() == "block.1"))
      y.back() = y.back() * 1.001;
    if (is("keeps_what_it_saved")) kept_ = saved;
    if (is("keeps_in_evaluation") && ctx.mode() != Mode::train) saved.extra = 1;
    return y;
  }
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) override {
    WithoutPositions whole(ctx);
    Tensors dx = inner_->backward(dy, is("ignores_positions") ? whole : ctx, saved);
    if (is("puts_nothing_off") && ctx.visit().part == Part::input) {
      inner_->backward_weight(ctx, saved);
      saved.weight_work.clear();
    }
    const std::vector<ParamPtr> all = params();
    const bool frozen = std::any_of(all.begin(), all.end(), [](const ParamPtr& p) { return !p->trainable; });
    if (is("another_gradient") || (is("depends_on_what_is_frozen") && frozen)) dx[0] = dx[0] * 1.001;
    return dx;
  }
  void backward_weight(StepContext& ctx, Saved& saved) override {
    if (!is("puts_nothing_off")) inner_->backward_weight(ctx, saved);
  }

 private:
  bool is(const char* mistake) const { return mistake_ == mistake; }
  const UnitPtr inner_;
  const std::string mistake_;
  Saved kept_;
};

// The layers of the outermost factory, decorated by all, are those of a block.
struct SpoiledBlocks : LayerFactory {
  SpoiledBlocks(std::shared_ptr<LayerFactory> inner, std::shared_ptr<LayerFactory> plain, std::string mistake)
      : inner(std::move(inner)), plain_layers(std::move(plain)), mistake(std::move(mistake)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override { return inner->linear(spec); }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override { return inner->embedding(spec); }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return inner->norm(spec); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override { return inner->attention(spec); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return inner->lm_loss(spec); }
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override {
    if (mistake == "makes_no_block") return plain();
    LayerFactory& used = mistake == "makes_plain_layers" ? *plain_layers : layers;
    return std::make_shared<SpoiledBlock>(inner->block(spec, used, plain), mistake);
  }
  const std::shared_ptr<LayerFactory> inner, plain_layers;
  const std::string mistake;
};

struct SpoiledStrategy : Strategy {
  SpoiledStrategy(std::shared_ptr<Strategy> inner, std::string mistake)
      : inner(std::move(inner)), mistake(std::move(mistake)) {}
  void build(Builder& builder) override {
    inner->build(builder);
    builder.layers = std::make_shared<SpoiledBlocks>(builder.layers, make_plain_layers(builder.attention()), mistake);
  }
  const std::shared_ptr<Strategy> inner;
  const std::string mistake;
};

void run_case(const std::string& name, const std::string& mistake) {
  at::set_num_threads(1);  // the work is small, and other tests run beside
  const auto maker = [&](const Host& host) -> std::shared_ptr<Strategy> {
    return std::make_shared<SpoiledStrategy>(
        installed_plugins().make<Strategy>("fused_block", R"({"recompute_cheap": false})", host.services), mistake);
  };
  for (const FusedBlockCase& c : fused_block_cases())
    if (name == c.name) return c.run(maker);
  FAIL() << "the suite has no case " << name;
}

constexpr PlantedMistake kMistakes[] = {
    {"lists_parameters_backwards", "has_the_parameters_of_plain_blocks_of_any_shape", "b.name"},
    {"another_output", "computes_what_plain_blocks_of_any_shape_do", "output of unit 1"},
    {"another_gradient", "follows_positions", "gradient 1 from the end"},
    {"depends_on_what_is_kept", "keeping_less_changes_no_bit", "mlp.act 1"},
    {"puts_nothing_off", "split_backward_gives_the_bits_of_the_whole", "was not put off"},
    {"depends_on_what_is_frozen", "frozen_parameters_get_no_gradient", "slot"},
    {"keeps_what_it_saved", "nothing_outlives_its_use", "after backward"},
    {"keeps_in_evaluation", "evaluates_and_generates", "has_value"},
    {"makes_plain_layers", "computes_with_layers_that_scale", ", outside"},
    {"makes_plain_layers", "computes_with_layers_that_halve_positions", "positions"},
    {"makes_plain_layers", "computes_with_layers_of_more_parameters", ", outside"},
    {"makes_no_block", "computes_with_layers_that_scale", "the block was left to the model"},
    {"ignores_positions", "follows_positions", "output of unit"},
    {"wants_summands", "returns_summands", "output"},
};

TEST(FusedBlockSuite, finds_every_mistake) {
  for (const PlantedMistake& planted : kMistakes) {
    SCOPED_TRACE(planted.name);
    expect_found(planted, failures_of([&] { run_case(planted.found_by, planted.name); }));
  }
}

// With the wrappers that the mistakes are in.
TEST(FusedBlockSuite, accepts_a_right_strategy) {
  for (const FusedBlockCase& c : fused_block_cases()) {
    SCOPED_TRACE(c.name);
    run_case(c.name, "");
  }
}

}  // namespace
}  // namespace drivetrain::test
