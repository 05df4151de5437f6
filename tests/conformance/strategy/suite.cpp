#include <drivetrain/testkit/strategy/suite.h>

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>

#include <set>
#include <tuple>
#include <typeinfo>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/terms.h>
#include <drivetrain/testkit/strategy/layers.h>

namespace drivetrain::test {

namespace {

void check_parameters(const std::string& model, Strategy& strategy) {
  const auto plain = Chain(model, nullptr).units.all(), fused = Chain(model, &strategy).units.all();
  ASSERT_EQ(plain.size(), fused.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    const Param &a = *plain[i], &b = *fused[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.layout, b.layout) << a.name;
    EXPECT_EQ(a.init.kind, b.init.kind) << a.name;
    EXPECT_EQ(a.init.std, b.init.std) << a.name;
    EXPECT_EQ(std::tie(a.trainable, a.role, a.blocks), std::tie(b.trainable, b.role, b.blocks)) << a.name;
  }
}

// Outputs, gradients of inputs and of parameters over several micro-batches.
void check_numbers(const std::string& model, Strategy& strategy, at::ScalarType dtype, double tolerance) {
  Chain plain(model, nullptr), fused(model, &strategy);
  plain.fill(dtype), fused.fill(dtype);
  for (int64_t micro = 0; micro < 3; ++micro) {
    PassResult wanted, found;
    for (const auto& [chain, result] : {std::pair{&plain, &wanted}, {&fused, &found}}) {
      chain->set_batch(3, 7, micro);
      *result = chain->forward_and_backward();
    }
    for (size_t i = 0; i < wanted.outputs.size(); ++i)
      expect_near(found.outputs[i], wanted.outputs[i], tolerance, concat("output of unit ", i));
    for (size_t i = 0; i < wanted.gradients.size(); ++i)
      expect_near(found.gradients[i], wanted.gradients[i], tolerance, concat("gradient ", i, " from the end"));
  }
  const auto wanted = slots(plain);
  for (const auto& [name, slot] : slots(fused)) expect_near(slot, wanted.at(name), tolerance, name);
}

// Two chains with the same numbers, on the model's own blocks and on the strategy's, after one step each of this batch.
void expect_same_step(Chain& plain, Chain& fused, const std::function<void(Chain&)>& set_up, Part part) {
  PassResult wanted, found;
  for (const auto& [chain, result] : {std::pair{&plain, &wanted}, {&fused, &found}}) {
    chain->fill(at::kDouble);
    set_up(*chain);
    *result = chain->forward_and_backward(part);
    if (part == Part::input) chain->backward_weight();
  }
  for (size_t i = 0; i < wanted.outputs.size(); ++i)
    expect_near(found.outputs[i], wanted.outputs[i], 1e-12, concat("output of unit ", i));
  for (size_t i = 0; i < wanted.gradients.size(); ++i)
    expect_near(found.gradients[i], wanted.gradients[i], 1e-12, concat("gradient ", i, " from the end"));
  const auto slots_wanted = slots(plain);
  for (const auto& [name, slot] : slots(fused)) expect_near(slot, slots_wanted.at(name), 1e-12, name);
}

void check_keeping_changes_no_bit(const FusedBlockMaker& make) {
  constexpr Keep all[] = {Keep::all, Keep::input, Keep::nothing};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const TrainedOnce wanted = train_once(make, dtype);
    for (const Keep norm : all)
      for (const Keep core : all)
        for (const Keep act : all) {
          SCOPED_TRACE(concat("norm ", int(norm), ", attn.core ", int(core), ", mlp.act ", int(act)));
          const TrainedOnce found = train_once(make, dtype, {{"norm", norm}, {"attn.core", core}, {"mlp.act", act}});
          expect_same_bits(found.pass.outputs, wanted.pass.outputs, "output");
          expect_same_bits(found.pass.gradients, wanted.pass.gradients, "gradient");
          expect_same_bits(found.slots, wanted.slots);
        }
  }
}

void check_fused_split_backward(const FusedBlockMaker& make) {
  for (const Keep keep : {Keep::all, Keep::nothing}) {
    const std::map<std::string, Keep> regions = {{"norm", keep}, {"attn.core", keep}, {"mlp.act", keep}};
    const TrainedOnce whole = train_once(make, at::kFloat, regions),
                      split = train_once(make, at::kFloat, regions, Part::input);
    expect_same_bits(split.pass.gradients, whole.pass.gradients, "gradient");
    expect_same_bits(split.slots, whole.slots);
  }
  Chain chain(full_block_model(), make(Host{}).get());
  chain.fill(at::kFloat);
  chain.set_batch(3, 5);
  chain.forward_and_backward(Part::input);
  for (const ParamPtr& param : chain.units.units[1]->params()) {
    const bool matrix = param->layout.global_shape.size() == 2;
    EXPECT_TRUE(!matrix || !param->has_grad()) << param->name << " was not put off";
  }
  chain.backward_weight();
  for (const ParamPtr& param : chain.units.units[1]->params()) EXPECT_TRUE(param->has_grad()) << param->name;
  EXPECT_TRUE(chain.saved[1].weight_work.empty());
}

// A frozen parameter has no slot here: a write would end the test. The others' gradients do not change.
void check_fused_frozen_parameters(const FusedBlockMaker& make) {
  const auto wanted = train_once(make, at::kFloat).slots;
  const std::set<std::string> some = {"block.0.norm1.weight", "block.0.attn.qkv.weight", "block.0.attn.proj.bias",
                                      "block.1.norm2.bias",   "block.1.mlp.fc.bias",     "block.1.mlp.proj.weight"};
  std::set<std::string> every;
  for (const auto& [name, slot] : wanted)
    if (name.starts_with("block.")) every.insert(name);
  for (const auto& frozen : {some, every}) {
    Chain chain(full_block_model(), make(Host{}).get());
    chain.fill(at::kFloat, frozen);
    for (int64_t micro = 0; micro < 2; ++micro) {
      chain.set_batch(3, 5, micro);
      chain.forward_and_backward();
    }
    for (const auto& [name, slot] : slots(chain)) EXPECT_TRUE(equal_tensors(slot, wanted.at(name))) << name;
  }
}

void check_nothing_outlives_its_use(const FusedBlockMaker& make) {
  Chain chain(full_block_model(), make(Host{}).get());
  chain.fill(at::kFloat);
  chain.set_batch(3, 5);
  chain.forward();
  EXPECT_GT(chain.attention->forwards, 0) << "an attention that was wrapped after build is not used";
  EXPECT_EQ(chain.attention->alive(), 6);  // q, out, lse of two blocks
  chain.forward_and_backward();
  EXPECT_EQ(chain.attention->alive(), 0) << "after backward";
  chain.context.keep_ = {{"attn.core", Keep::input}};
  chain.forward();
  EXPECT_EQ(chain.attention->alive(), 2) << "with the core's inputs kept";
  chain.context.keep_ = {{"attn.core", Keep::nothing}};
  chain.forward();
  EXPECT_EQ(chain.attention->alive(), 0) << "with nothing of the core kept";
}

// Evaluation drops nothing at random and keeps nothing; generation has rows and lengths of its own, and no labels.
void check_forward_only(const FusedBlockMaker& make) {
  Chain plain(full_block_model(), nullptr), fused(full_block_model(), make(Host{}).get());
  const at::AutoGradMode off(false);
  for (const Mode mode : {Mode::evaluate, Mode::generate})
    for (const int64_t S : {1, 2, 9}) {
      PassResult wanted, found;
      for (const auto& [chain, result] : {std::pair{&plain, &wanted}, {&fused, &found}}) {
        chain->fill(at::kDouble);
        chain->context.mode_ = mode;
        chain->set_batch(1, S);
        if (mode == Mode::generate) chain->context.batch_.labels_BS.reset();
        *result = chain->forward();
      }
      expect_near(found.outputs.back(), wanted.outputs.back(), 1e-12, concat("output for ", S, " tokens"));
      EXPECT_EQ(fused.attention->alive(), 0);
      for (const Saved& saved : fused.saved) EXPECT_FALSE(saved.extra.has_value());
    }
}

// Layers that compute something else are computed with, decorated further inside or outside, whatever is kept or put
// off.
template <class Layers>
void check_follows_its_layers(const FusedBlockMaker& make, const std::vector<RowRange>& between) {
  constexpr Keep all[] = {Keep::all, Keep::input, Keep::nothing};
  for (const char* rest :
       {R"(, "position_embedding_type": "rope", "num_query_groups": 2, "hidden_dropout": 0.2)",
        R"(, "activation": "swiglu", "add_bias": false, "hidden_dropout": 0.2, "attention_dropout": 0.3)"})
    for (const bool outside : {false, true})
      for (const Keep keep : all)
        for (const Part part : {Part::whole, Part::input}) {
          SCOPED_TRACE(concat(rest, outside ? ", outside" : ", inside", ", keep ", int(keep), ", part ", int(part)));
          const Host host;
          const auto strategy = make(host);
          const std::function<void(Builder&)> decorated = decorate<Layers>;
          Chain plain(block_model(rest), nullptr, decorated);
          Chain fused(block_model(rest), strategy.get(), outside ? nullptr : decorated, outside ? decorated : nullptr);
          const auto set_up = [&](Chain& chain) {
            chain.set_batch(3, 6);
            chain.context.activation_positions_ = between;
            chain.context.keep_ = {{"norm", keep}, {"attn.core", keep}, {"mlp.act", keep}};
          };
          expect_same_step(plain, fused, set_up, part);
          EXPECT_TRUE(fused.units.units[1]->returns_summands()) << "the block was left to the model";
        }
}

// Columns of the batch that are parts of a longer sequence: rotation, learned positions and dropout follow.
void check_follows_positions(const FusedBlockMaker& make) {
  for (const char* rest : {R"(, "position_embedding_type": "rope")", ""}) {
    SCOPED_TRACE(rest);
    const std::string model = block_model(concat(rest, R"(, "hidden_dropout": 0.2)"));
    const Host host;
    const auto strategy = make(host);
    Chain plain(model, nullptr), fused(model, strategy.get()), elsewhere(model, make(host).get());
    const auto set_up = [](Chain& chain) {
      chain.set_batch(3, 6);
      chain.context.batch_.positions = {{1, 2}, {12, 4}};
    };
    expect_same_step(plain, fused, set_up, Part::whole);
    expect_same_step(plain, fused, set_up, Part::whole);  // with what the first step left
    elsewhere.fill(at::kDouble), elsewhere.set_batch(3, 6);
    EXPECT_FALSE(at::equal(elsewhere.forward().outputs[2], fused.forward().outputs[2]));
  }
}

// What a block returns may come to the next one as one tensor, from another rank.
void check_returns_summands(const FusedBlockMaker& make) {
  Chain chain(full_block_model(), make(Host{}).get());
  chain.fill(at::kDouble), chain.set_batch(3, 5);
  Saved saved[3];
  const auto unit = [&](size_t i) -> Unit& { return *chain.units.units[i]; };
  ASSERT_TRUE(unit(1).returns_summands());
  const Tensors pair = unit(1).forward(unit(0).forward({chain.context.batch_.tokens_BS}, chain.context, saved[0]),
                                       chain.context, saved[0]);
  ASSERT_EQ(pair.size(), 2u);
  const Tensors from_pair = unit(2).forward(pair, chain.context, saved[1]);
  const Tensors from_sum = unit(2).forward({at::add(pair[0], pair[1])}, chain.context, saved[2]);
  expect_same_bits(from_sum, from_pair, "output");
  const Tensors dy = {from_pair[0], from_pair[1]};
  const Tensors d_pair = unit(2).backward(dy, chain.context, saved[1]),
                d_sum = unit(2).backward(dy, chain.context, saved[2]);
  ASSERT_EQ(d_pair.size(), 2u);
  expect_same_bits({d_sum[0], d_sum[0]}, d_pair, "gradient");
}

void check_all_parameters(const FusedBlockMaker& make) {
  for (const std::string& model : block_models()) {
    SCOPED_TRACE(model);
    const Host host;
    check_parameters(model, *make(host));
  }
}

void check_all_shapes(const FusedBlockMaker& make) {
  for (const std::string& model : block_models()) {
    SCOPED_TRACE(model);
    const Host host;
    check_numbers(model, *make(host), at::kDouble, 1e-12);
    // Roundings of some 60 operations in a row, of sums with a few dozen terms: within 50 units of the last place.
    check_numbers(model, *make(host), at::kFloat, 50 * 0x1p-23);
  }
}

void check_follows_scaled_layers(const FusedBlockMaker& make) { check_follows_its_layers<ScaledLayers>(make, {}); }
void check_follows_halved_layers(const FusedBlockMaker& make) {
  check_follows_its_layers<HalvedLayers>(make, {{0, 3}});
}

void check_follows_layers_with_terms(const FusedBlockMaker& make) { check_follows_its_layers<TermLayers>(make, {}); }

constexpr FusedBlockCase kFusedBlockCases[] = {
    {"has_the_parameters_of_plain_blocks_of_any_shape", check_all_parameters},
    {"computes_what_plain_blocks_of_any_shape_do", check_all_shapes},
    {"keeping_less_changes_no_bit", check_keeping_changes_no_bit},
    {"split_backward_gives_the_bits_of_the_whole", check_fused_split_backward},
    {"frozen_parameters_get_no_gradient", check_fused_frozen_parameters},
    {"nothing_outlives_its_use", check_nothing_outlives_its_use},
    {"evaluates_and_generates", check_forward_only},
    {"computes_with_layers_that_scale", check_follows_scaled_layers},
    {"computes_with_layers_that_halve_positions", check_follows_halved_layers},
    {"computes_with_layers_of_more_parameters", check_follows_layers_with_terms},
    {"follows_positions", check_follows_positions},
    {"returns_summands", check_returns_summands},
};

}  // namespace

std::vector<FusedBlockCase> fused_block_cases() { return {std::begin(kFusedBlockCases), std::end(kFusedBlockCases)}; }

bool makes_blocks(const FusedBlockMaker& make) {
  const Host host;
  const auto strategy = make(host), none = std::shared_ptr<Strategy>();
  return typeid(*Chain(full_block_model(), strategy.get()).units.units[1]) !=
         typeid(*Chain(full_block_model(), none.get()).units.units[1]);
}

Suite fused_block_suite() {
  Suite suite;
  for (const auto& [name, run] : kFusedBlockCases)
    suite.push_back({name, [name = name, run = run](const Subject& subject) {
                       const FusedBlockMaker make = [&](const Host& host) {
                         return installed_plugins().make<Strategy>(subject.kind, subject.name, subject.options,
                                                                   host.services);
                       };
                       if (!makes_blocks(make))
                         return left_out(name, "the strategy leaves blocks to the model (LayerFactory::block)");
                       run(make);
                     }});
  for (SuiteCase& run : strategy_run_cases()) suite.push_back(std::move(run));
  return suite;
}

}  // namespace drivetrain::test
