// strategy/fused_block: what it leaves to the model, what it says, 16 bits.
#include "block.h"
#include "conformance/strategy/memory.h"
#include "support/plugin_under_test.h"

#include <gtest/gtest.h>

#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include <drivetrain/testkit/kit/terms.h>
#include <drivetrain/testkit/strategy/layers.h>
#include <drivetrain/testkit/strategy/suite.h>

#include "kernels/common/kernel.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

CountedMemory memory;

// Keeps what the policy says, nothing less.
std::unique_ptr<Strategy> fused(const Host& host) {
  return make_plugin<Strategy>(host, "fused_block", R"({"recompute_cheap": false})");
}

TEST(FusedBlock, recompute_cheap_changes_no_bit) {
  const auto cheap = [](const Host& host) { return make_plugin<Strategy>(host, "fused_block"); };
  const TrainedOnce wanted = train_once(fused, at::kFloat), found = train_once(cheap, at::kFloat);
  expect_same_bits(found.pass.outputs, wanted.pass.outputs, "output");
  expect_same_bits(found.pass.gradients, wanted.pass.gradients, "gradient");
  expect_same_bits(found.slots, wanted.slots);
}

// A gain that is cut over ranks: the block computes norms itself, and knows whole ones only.
struct CutNorm : Norm {
  explicit CutNorm(std::shared_ptr<Norm> inner) : inner(std::move(inner)) {
    Layout& layout = this->inner->params()[0]->layout;
    layout.dims = {DimSplit{{"tp"}, {}, 0}};
  }
  std::vector<ParamPtr> params() const override { return inner->params(); }
  at::Tensor forward(const at::Tensor& x, StepContext& ctx) override { return inner->forward(x, ctx); }
  std::shared_ptr<Norm> inner;
};

struct Decorated : OtherLayers {
  Decorated(std::shared_ptr<LayerFactory> inner, std::string name)
      : OtherLayers(std::move(inner)), name(std::move(name)) {}
  std::shared_ptr<Norm> norm(const NormSpec& spec) override {
    const auto made = inner->norm(spec);
    if (spec.name == name) return std::make_shared<CutNorm>(made);
    // Sums over ranks that see other positions are the runtime's affair.
    for (const ParamPtr& param : made->params()) param->layout.partial_over = {"tp"};
    return made;
  }
  std::string name;
};

TEST(FusedBlock, leaves_blocks_of_norms_it_does_not_know_to_the_model_and_says_so) {
  const Host host;
  const auto strategy = fused(host);
  const Chain chain(block_model(""), strategy.get(), [](Builder& builder) {
    builder.layers = std::make_shared<Decorated>(builder.layers, "block.1.norm2");
  });
  EXPECT_EQ(host.log.lines, (std::vector<std::string>{
                                "strategy/fused_block: computes 1 of 2 blocks",
                                "strategy/fused_block: leaves block.1 to the model: norm2 is not a plain layer"}));
  EXPECT_EQ(chain.units.units[2]->params().size(), 12u);
}

// Adapters, say: their parameters are the block's, and its own are where they were.
TEST(FusedBlock, computes_with_linear_layers_of_any_parameters) {
  const Host host;
  const auto strategy = fused(host);
  const Chain chain(block_model(""), strategy.get(), decorate<TermLayers>);
  EXPECT_EQ(host.log.lines, std::vector<std::string>{"strategy/fused_block: computes 2 of 2 blocks"});
  EXPECT_EQ(chain.units.units[1]->params().size(), 12u + 4 * 2);
}

// What a layer wants to keep of a norm's output is kept though the output is not: a gather costs more than a norm.
TEST(FusedBlock, lets_layers_keep_their_inputs_and_nothing_where_it_multiplies_again) {
  const auto counts = [](const std::string& options, Keep core) {
    const Host host;
    const auto strategy = make_plugin<Strategy>(host, "fused_block", options);
    Chain chain(block_model(""), strategy.get(), decorate<ScaledLayers>);
    chain.fill(at::kFloat), chain.set_batch(2, 5);
    chain.context.keep_ = {{"attn.core", core}};
    ScaledLinear::applied = ScaledLinear::asked_to_keep = ScaledLinear::got_kept = 0;
    chain.forward_and_backward();
    return std::vector<int64_t>{ScaledLinear::applied, ScaledLinear::asked_to_keep, ScaledLinear::got_kept};
  };
  // Of two blocks, each with four products.
  EXPECT_EQ(counts(R"({"recompute_cheap": false})", Keep::all), (std::vector<int64_t>{8, 8, 8}));
  // not of the activation, which is computed again
  EXPECT_EQ(counts("{}", Keep::all), (std::vector<int64_t>{8, 6, 6}));
  // The first product again, in backward, where what it kept is read at once.
  EXPECT_EQ(counts(R"({"recompute_cheap": false})", Keep::nothing), (std::vector<int64_t>{10, 6, 6}));
}

// What the plan of a run's memory goes by, held against the bytes that a block leaves: fused ones, with what they
// compute again and without, and the model's own.
TEST(FusedBlock, blocks_leave_the_bytes_that_they_tell) {
  const Host host;
  const std::string grouped = R"(, "activation": "swiglu", "normalization": "rmsnorm", "num_query_groups": 2)";
  for (const char* options : {"", "{}", R"({"recompute_cheap": false})"})
    for (const std::string& rest : {std::string(), grouped}) {
      SCOPED_TRACE(concat("fused_block ", options, ", model ", rest));
      const auto strategy = *options ? make_plugin<Strategy>(host, "fused_block", options) : nullptr;
      Chain chain(concat(R"({"num_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 13,)",
                         R"("max_position_embeddings": 64)", rest, "}"),
                  strategy.get());
      chain.fill(at::kFloat), chain.set_batch(2, 64);
      Saved saved[10];
      size_t unit = 0;
      Tensors x = {chain.context.batch_.tokens_BS};
      const auto elements_left = [&](const std::string& again) {  // per token, by the next unit
        chain.context.keep_ = {{again, Keep::input}};
        const int64_t before = memory.alive;
        x = chain.units.units[unit]->forward(x, chain.context, saved[unit]);
        ++unit;
        return static_cast<double>(memory.alive - before) / 4 / (2 * 64);
      };
      elements_left(""), elements_left("");
      ASSERT_TRUE(chain.units.units[unit]->is_block());
      const auto keeps = chain.units.units[unit]->keeps();
      ASSERT_TRUE(keeps.has_value());
      const double few = 16;  // statistics of both norms and of 4 heads, and what allocators add
      const double kept = elements_left(""), told = keeps->all.whole + keeps->all.shared;
      EXPECT_NEAR(kept, told + few / 2, few / 2 + 4);
      ASSERT_EQ(keeps->regions.size(), 3u);
      for (const auto& region : keeps->regions)
        EXPECT_NEAR(kept - elements_left(region.name), region.freed.whole + region.freed.shared, few) << region.name;
      EXPECT_EQ(keeps->inputs.whole, 64.0) << "the runtime adds what comes as two summands";
    }
}

// And what the plan counts, which has statistics of norms and the attention's part as well.
TEST(FusedBlock, blocks_keep_the_bytes_that_they_tell_the_plan) {
  const Host host;
  const std::string grouped = R"(, "activation": "swiglu", "normalization": "rmsnorm", "num_query_groups": 2)";
  for (const char* options : {"", "{}", R"({"recompute_cheap": false})"})
    for (const std::string& rest : {std::string(), grouped})
      for (const Keep core : {Keep::all, Keep::input}) {
        SCOPED_TRACE(concat("fused_block ", options, ", model ", rest, ", core ", static_cast<int>(core)));
        const auto strategy = *options ? make_plugin<Strategy>(host, "fused_block", options) : nullptr;
        Chain chain(concat(R"({"num_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 13,)",
                           R"("max_position_embeddings": 64)", rest, "}"),
                    strategy.get());
        chain.fill(at::kFloat), chain.set_batch(2, 64);
        chain.context.keep_ = {{"attn.core", core}};
        Saved saved[3];
        Tensors x = {chain.context.batch_.tokens_BS};
        for (size_t u = 0; u < 2; ++u) x = chain.units.units[u]->forward(x, chain.context, saved[u]);
        VisitShape shape;
        shape.rows = 2, shape.tokens = shape.rank_tokens = 128;
        const auto memory_of_visit = chain.units.units[2]->visit_memory(
            shape, [&](std::string_view region) { return region == "attn.core" ? core : Keep::all; });
        ASSERT_TRUE(memory_of_visit.has_value());
        const double told = memory_of_visit->kept.bytes();
        const int64_t before = memory.alive;
        const Tensors y = chain.units.units[2]->forward(x, chain.context, saved[2]);
        // The next unit adds a delta up and drops it.
        const double delta = y.size() == 2 ? 128 * 64 * 4 : 0;
        EXPECT_NEAR(static_cast<double>(memory.alive - before) - delta, told, 0.03 * told);
      }
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
      {[](BlockSpec& s) { s.activation = "tanh"; },
       "leaves b to the model: activation tanh is not known: use gelu_tanh, gelu, silu, relu, swiglu, geglu, "
       "geglu_tanh or "
       "reglu"},
      {[](BlockSpec& s) { s.kv_heads = 3; }, "leaves b to the model: 3 key/value heads do not divide 4 heads"},
      {[](BlockSpec& s) {
         s.rotary = true, s.rotary_frequencies = {1, 1, 1};
       },
       "leaves b to the model: there are 3 rotary frequencies for a head size of 4"}};
  for (const auto& [change, message] : cases) {
    const Host host;
    const auto strategy = fused(host);
    const Mesh mesh({}, 0, 1, nullptr);
    const ModelFacts facts;
    Builder builder{nullptr, nullptr, mesh, facts};
    builder.layers = make_plain_layers(builder.attention());
    strategy->build(builder);
    BlockSpec spec;
    spec.name = "b", spec.hidden = 8, spec.ffn = 8, spec.heads = spec.kv_heads = 4, spec.head_dim = 4,
    spec.activation = "gelu";
    change(spec);
    const UnitPtr plain = std::make_shared<Nobody>();
    EXPECT_EQ(builder.layers->block(spec, *builder.layers, [&] { return plain; }), plain);
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
  const Services services{.log = log, .store = store};
  const auto strategy = installed_plugins().make<Strategy>("fused_block", "{}", services);
  for (const bool training : {true, false}) {
    RunFacts run;
    run.training = training;
    PlanRecord context({}, run);
    context.set_plugin("strategy/fused_block");
    strategy->plan(context);
    EXPECT_EQ(context.capturables(), std::vector<std::string>{"strategy/fused_block"});
    UnitList none;
    strategy->attach(none);
  }
  EXPECT_EQ(log.levels, (std::vector<LogLevel>{LogLevel::info, LogLevel::debug}));
}

TEST(FusedBlock, names_gelu_fusion_where_it_changes_nothing) {
  const auto notes = [](const std::string& device, const std::string& dtype, const std::string& model) {
    const Host host;
    const auto strategy = make_plugin<Strategy>(host, "fused_block", R"({"gelu_fusion": true})");
    RunFacts run;
    run.device = device, run.compute_dtype = dtype, run.compute_bytes = dtype == "float32" ? 4 : 2;
    PlanRecord context({}, run);
    context.set_plugin("strategy/fused_block");
    strategy->plan(context);
    const Chain chain(concat(R"({"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 13,)",
                             R"("max_position_embeddings": 16)", model, "}"),
                      strategy.get());
    std::string all;
    for (const PlanRecord::Note& note : context.no_effects()) all += note.text;
    for (size_t i = 1; i < host.log.lines.size(); ++i) all += host.log.lines[i];
    return all;
  };
  const std::string not_here =
      "gelu_fusion changes nothing: cuBLASLt has GELU in products of bfloat16 and float16 on CUDA; this run computes ";
  EXPECT_EQ(notes("cpu", "bfloat16", ""), not_here + "in bfloat16 on cpu");
  EXPECT_EQ(notes("cuda", "float32", ""), not_here + "in float32 on cuda");
  const std::string in_both_blocks =
      "strategy/fused_block: gelu_fusion changes nothing in 2 blocks: those that are left to the model, with another "
      "activation than gelu_tanh, with widths that are no multiples of 8, and with layers that another plugin computes "
      "(8 bits, adapters, tensor parallelism)";
  EXPECT_EQ(notes("cuda", "bfloat16", R"(, "activation": "swiglu", "ffn_hidden_size": 32)"), in_both_blocks);
  EXPECT_EQ(notes("cuda", "bfloat16", R"(, "ffn_hidden_size": 60)"), in_both_blocks);
  // Where nvcc was not there, plain layers have no such products.
  EXPECT_EQ(notes("cuda", "float16", ""), kernels::kWithCuda ? "" : in_both_blocks);
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
