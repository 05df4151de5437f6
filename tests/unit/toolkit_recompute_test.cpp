// Regions that run again: the same bits, weight gradients once and where they belong, memory let go; inputs on the
// host; which blocks.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/toolkit/layers/plain_layers.h>
#include <drivetrain/toolkit/recompute/recomputable.h>
#include <drivetrain/toolkit/recompute/recompute_blocks.h>
#include <drivetrain/toolkit/units/autograd_unit.h>

#include <drivetrain/testkit/data_parallel/chain.h>
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

struct PolicyContext : ToyContext {
  explicit PolicyContext(Keep keep) : keep_(keep) {
    visits_.resize(1);
    batch_.first_sample = 3;
  }
  Keep keep(std::string_view) const override { return keep_; }
  Keep keep_;
};

at::Tensor numbers(std::vector<int64_t> shape, const char* name) {
  at::Tensor t = at::empty(shape, at::TensorOptions(at::kFloat));
  fill_uniform(t, {1, 1, hash_name(name), 0, {}});
  return t;
}

std::shared_ptr<Linear> linear_layer(int64_t in, int64_t out) {
  static const std::shared_ptr<Attention> no_attention;
  const auto layer = make_plain_layers(no_attention)->linear({"w", in, out, Split::none, true, {}, InitRule::ones()});
  for (const ParamPtr& p : layer->params()) {
    p->tensor = numbers(p->layout.global_shape, p->name.c_str()).set_requires_grad(true);
    p->grad = at::zeros(p->layout.global_shape);
  }
  return layer;
}

// y = act(x W1^T + b1) W2^T + b2, dropout inside the region. How the region is written is the test's.
class Toy : public AutogradUnit {
 public:
  Toy() : AutogradUnit("block.0"), first(linear_layer(5, 7)), second(linear_layer(7, 4)) {}
  std::vector<ParamPtr> params() const override {
    std::vector<ParamPtr> all = first->params();
    for (const ParamPtr& p : second->params()) all.push_back(p);
    return all;
  }
  Tensors run(const Tensors& x, StepContext& ctx) override {
    const auto region = [this, &ctx](const Tensors& in) {
      ++calls;
      return at::tanh(dropout(first->forward(in[0], ctx), 0.3, ctx.random("noise")));
    };
    if (product) return {recomputable_linear(ctx, "region", x, region, second)};
    return {second->forward(recomputable(ctx, "region", x, [=](const Tensors& in) { return Tensors{region(in)}; })[0],
                            ctx)};
  }
  std::shared_ptr<Linear> first, second;
  bool product = false;
  int calls = 0;
};

struct Result {
  Tensors all;  // y, dx, gradients of the parameters
  size_t parked = 0;
  int calls = 0;
};

Result run_toy(Keep keep, bool product, Part part = Part::whole, int micro_batches = 1) {
  Toy toy;
  toy.product = product;
  PolicyContext ctx(keep);
  Result result;
  for (int micro = 0; micro < micro_batches; ++micro) {
    Saved saved;
    ctx.batch_.first_sample = micro;
    ctx.visits_[0].part = Part::whole;
    result.all = toy.forward({numbers({3, 2, 5}, "x")}, ctx, saved);
    ctx.visits_[0].part = part, ctx.visits_[0].direction = Direction::backward;
    for (const at::Tensor& dx : toy.backward({numbers({3, 2, 4}, "dy")}, ctx, saved)) result.all.push_back(dx);
    result.parked = saved.weight_work.size();
    if (part == Part::input) toy.backward_weight(ctx, saved);
  }
  for (const ParamPtr& p : toy.params()) {
    EXPECT_TRUE(p->has_grad());
    result.all.push_back(p->grad);
  }
  result.calls = toy.calls;
  return result;
}

void expect_same_bits(const Result& found, const Result& wanted) {
  ASSERT_EQ(found.all.size(), wanted.all.size());
  for (size_t i = 0; i < wanted.all.size(); ++i) EXPECT_TRUE(at::equal(found.all[i], wanted.all[i])) << i;
}

TEST(Recomputable, gives_the_bits_of_what_is_kept) {
  for (const int micro_batches : {1, 2})
    for (const bool product : {false, true})
      for (const Keep keep : {Keep::input, Keep::nothing}) {
        const Result kept = run_toy(Keep::all, product, Part::whole, micro_batches);
        const Result again = run_toy(keep, product, Part::whole, micro_batches);
        expect_same_bits(again, kept);
        EXPECT_EQ(kept.calls, micro_batches);
        EXPECT_EQ(again.calls, 2 * micro_batches);
      }
}

TEST(Recomputable, parks_weight_gradients_of_a_split_backward_as_the_unit_does) {
  for (const bool product : {false, true}) {
    const Result split = run_toy(Keep::input, product, Part::input);
    EXPECT_EQ(split.parked, 2u);
    expect_same_bits(split, run_toy(Keep::all, product));
  }
}

TEST(Recomputable, lets_go_of_what_lies_inside) {
  PolicyContext ctx(Keep::input);
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  c10::weak_intrusive_ptr<c10::TensorImpl> inside(x.getIntrusivePtr());
  const auto region = [&](const Tensors& in) {
    const at::Tensor between = in[0] * 2;
    inside = c10::weak_intrusive_ptr<c10::TensorImpl>(between.getIntrusivePtr());
    return Tensors{between * between};  // whose backward wants it
  };
  const Tensors y = recomputable(ctx, "region", {x}, region);
  EXPECT_TRUE(inside.expired());
  y[0].backward(at::ones({4}));
  EXPECT_TRUE(inside.expired());
  ctx.keep_ = Keep::all;
  const Tensors kept = recomputable(ctx, "region", {x}, region);
  EXPECT_FALSE(inside.expired()) << "or the test sees nothing";
}

TEST(Recomputable, keeps_nothing_where_no_backward_follows) {
  PolicyContext ctx(Keep::input);
  const at::NoGradGuard off;
  const at::Tensor x = at::ones({4});
  const auto uses = x.storage().use_count();
  const Tensors y = recomputable(ctx, "region", {x}, [](const Tensors& in) { return Tensors{in[0] * 2}; });
  EXPECT_FALSE(y[0].requires_grad());
  EXPECT_EQ(x.storage().use_count(), uses);
}

TEST(Recomputable, reaches_weights_of_a_region_whose_inputs_need_no_gradient) {
  for (const bool product : {false, true}) {
    PolicyContext ctx(Keep::input);
    Toy toy;
    toy.product = product;
    const at::Tensor y = toy.run({numbers({1, 2, 5}, "x")}, ctx)[0];
    ASSERT_TRUE(y.requires_grad());
    y.backward(at::ones({1, 2, 4}));
    for (const ParamPtr& p : toy.params()) EXPECT_GT(p->grad.abs().sum().item<double>(), 0) << p->name;
  }
}

TEST(Recomputable, hands_an_input_through) {
  PolicyContext ctx(Keep::input);
  const at::Tensor leaf = at::ones({2}).set_requires_grad(true), x = leaf * 3;
  const Tensors y = recomputable(ctx, "region", {x}, [](const Tensors& in) { return in; });
  (y[0] * 2 + x).backward(at::ones({2}));
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({2}, 9.0)));
}

TEST(Recomputable, names_the_region_whose_input_was_changed_meanwhile) {
  PolicyContext ctx(Keep::input);
  const at::Tensor leaf = at::ones({2}).set_requires_grad(true);
  at::Tensor x = leaf * 3;
  const Tensors y = recomputable(ctx, "mlp.act", {x}, [](const Tensors& in) { return Tensors{in[0] * 2}; });
  x.mul_(2);
  const std::string error = error_of([&] { y[0].backward(at::ones({2})); });
  EXPECT_NE(error.find("input 0 of region mlp.act was changed in place"), std::string::npos) << error;
}

TEST(HostStash, gives_back_what_it_took_and_uses_its_memory_again) {
  const HostStash stash(false);
  const at::Tensor x = numbers({3, 4}, "x"), ids = at::full({5}, 7, at::TensorOptions(at::kLong)), sideways = x.t();
  const at::Tensor wanted = x.clone();
  auto held = stash.hold({x, ids, sideways, at::Tensor()});
  Tensors back = held->restore();
  ASSERT_EQ(back.size(), 4u);
  EXPECT_TRUE(at::equal(back[0], wanted) && at::equal(back[1], ids) && at::equal(back[2], sideways));
  EXPECT_NE(back[0].const_data_ptr(), x.const_data_ptr()) << "the caller's memory may be gone";
  EXPECT_FALSE(back[3].defined());
  // Two at a time, then again: values do not mix.
  for (int round = 0; round < 3; ++round) {
    auto first = stash.hold({at::full({100}, round)}), second = stash.hold({at::full({100}, round + 10)});
    EXPECT_EQ(second->restore()[0][99].item<double>(), round + 10);
    EXPECT_EQ(first->restore()[0][0].item<double>(), round);
  }
}

TEST(HostStash, takes_what_is_not_contiguous_too_and_gives_it_back_dense) {
  const HostStash stash(false);
  const at::Tensor x = numbers({3, 4}, "x"), wanted = x.t().clone();
  auto held = stash.hold({x.t()});
  x.zero_();
  const Tensors back = held->restore();
  EXPECT_TRUE(at::equal(back[0], wanted));
  EXPECT_TRUE(back[0].is_contiguous());
}

struct Named : Unit {
  Named(std::string name, bool block) : Unit(std::move(name)), block(block) {}
  bool is_block() const override { return block; }
  std::optional<UnitKeeps> keeps() const override { return said; }
  std::vector<ParamPtr> params() const override { return {}; }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }
  const bool block;
  std::optional<UnitKeeps> said = UnitKeeps{{4, 4}, {1, 0}, {{"norm", {2, 0}}, {"mlp.act", {}}}};
};

TEST(UnitMemory, is_what_the_unit_keeps_where_it_declares_nothing_else) {
  Named unit("block.0", true);
  VisitShape shape;  // two ranks that share every layer and have half of the positions between layers
  shape.tokens = 10, shape.rank_tokens = 5, shape.tensor_ranks = 2;
  const auto kept = [&](Keep norm) {
    const auto keep = [&](std::string_view region) { return region == "norm" ? norm : Keep::all; };
    return unit.visit_memory(shape, keep).value();
  };
  EXPECT_EQ(kept(Keep::all).kept.bytes(), (4 * 5 + 4 * 10 / 2) * 4);
  EXPECT_EQ(kept(Keep::input).kept.bytes(), (4 * 5 + 4 * 10 / 2 - 2 * 5) * 4);
  EXPECT_EQ(kept(Keep::all).inputs.bytes(), 5 * 4);
  EXPECT_EQ(kept(Keep::all).working.bytes(), 0);
  unit.said.reset();
  EXPECT_FALSE(unit.visit_memory(shape, [](std::string_view) { return Keep::all; }).has_value());
}

TEST(BlockChoice, takes_the_first_of_the_units_that_are_blocks) {
  UnitList units;
  for (const char* name : {"embedding.0", "first", "second", "third", "head"})
    units.units.push_back(
        std::make_shared<Named>(name, std::string("embedding.0 head").find(name) == std::string::npos));
  BlockChoice choice(0.6);
  choice.choose(units);
  EXPECT_EQ(choice.blocks(), 3);
  EXPECT_EQ(choice.chosen(), 2);
  EXPECT_TRUE(choice.has("first") && choice.has("second"));
  EXPECT_FALSE(choice.has("third") || choice.has("head") || choice.has("embedding.0"));
  EXPECT_EQ(choice.regions(), (BlockChoice::Regions{{"mlp.act", false}, {"norm", true}}));
  std::dynamic_pointer_cast<Named>(units.units[2])->said.reset();
  choice.choose(units);
  EXPECT_FALSE(choice.regions().has_value()) << "one of the chosen blocks does not say what it keeps";
  EXPECT_EQ(BlockChoice::count(0.5, 5), 3);
  EXPECT_EQ(BlockChoice::count(0.34, 3), 1);
  EXPECT_EQ(BlockChoice::count(0.1, 3), 0);
  EXPECT_EQ(BlockChoice::count(1, 7), 7);
}

}  // namespace
}  // namespace drivetrain::test
