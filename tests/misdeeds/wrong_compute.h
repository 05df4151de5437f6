// Kinds that take part in the computation of a step, and misbehave there.
#pragma once

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/attention.h>
#include <drivetrain/data_parallel.h>
#include <drivetrain/mesh.h>
#include <drivetrain/precision.h>
#include <drivetrain/recompute.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include "conformance/kit/terms.h"
#include "misdeeds/deed.h"

namespace drivetrain::misdeeds {

// A unit whose backward leaves out the gradient of its first parameter.
class Forgetful : public Unit {
 public:
  explicit Forgetful(UnitPtr inner) : Unit(inner->name()), inner_(std::move(inner)) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }
  Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) override { return inner_->forward(x, ctx, saved); }
  Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) override {
    Tensors dx = inner_->backward(dy, ctx, saved);
    inner_->params().front()->restart_grad();
    return dx;
  }
  bool returns_summands() const override { return inner_->returns_summands(); }
  bool is_block() const override { return inner_->is_block(); }

 private:
  const UnitPtr inner_;
};

// Positions are learned by nobody.
class FrozenPositions : public DecoratedLayers {
 public:
  using DecoratedLayers::DecoratedLayers;
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override {
    auto made = DecoratedLayers::embedding(spec);
    if (!spec.vocabulary)
      for (const ParamPtr& param : made->params()) param->trainable = false;
    return made;
  }
};

// What a strategy may give in the place of layers, and may not.
class WrongLayers : public DecoratedLayers {
 public:
  WrongLayers(const Builder& builder, const Deed& deed)
      : DecoratedLayers(builder.layers), own_(make_plain_layers(builder.attention())), deed_(deed) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    if (deed_.is("no layer")) return nullptr;
    return deed_.is("own layers") ? own_->linear(spec) : DecoratedLayers::linear(spec);
  }
  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override {
    return deed_.is("no block") ? nullptr : DecoratedLayers::block(spec, layers, plain);
  }

 private:
  const std::shared_ptr<LayerFactory> own_;
  const Deed& deed_;
};

// Whether a deed is one of layers.
inline void put_wrong_layers(Builder& builder, const Deed& deed) {
  if (deed.is("no factory")) builder.layers = nullptr;
  for (const char* of_layers : {"no layer", "own layers", "no block"})
    if (deed.is(of_layers)) builder.layers = std::make_shared<WrongLayers>(builder, deed);
}

class WrongStrategy : public Wrong<Strategy> {
 public:
  using Wrong::Wrong;
  void plan(PlanContext&) override { deed_.at("plan"); }
  void build(Builder& builder) override {
    deed_.at("build");
    if (deed_.is("freeze")) builder.layers = std::make_shared<FrozenPositions>(builder.layers);
    if (deed_.is("add terms")) builder.layers = std::make_shared<test::TermLayers>(builder.layers);
    put_wrong_layers(builder, deed_);
  }
  void attach(UnitList& units) override {
    deed_.at("attach");
    units_ = units;
    if (deed_.is("drop a unit")) units.units.pop_back();
    if (deed_.is("forget")) units.units[1] = std::make_shared<Forgetful>(units.units[1]);
  }
  void step_begin(StepContext& ctx) override {
    deed_.stand_at_gate(ctx.step());
    deed_.at("step_begin");
    if (deed_.is("reserved figure")) ctx.metric("loss", at::full({}, 1.0));
    if (deed_.is("wide figure")) ctx.metric("mine", at::full({2}, 1.0));
  }
  void before_forward(const Visit& visit, StepContext&) override {
    deed_.at("before_forward");
    if (deed_.is("write ahead") && visit.unit == 0 && visit.micro > 0) write_to(*units_.units[1]);
  }
  void after_backward(const Visit& visit, StepContext&) override {
    deed_.at("after_backward");
    if (deed_.is("write behind") && visit.unit == 0) write_to(*units_.units[1]);
  }
  void flush_grads(StepContext&) override { deed_.at("flush_grads"); }
  void after_update(Trainables& chunk, StepContext& ctx) override {
    if (ctx.step() > 0) deed_.at("after_update");
    if (deed_.is("drift") && !chunk.empty()) at::Tensor(chunk.front().value).add_(1e-3);
  }
  void step_end(StepContext&) override {
    deed_.at("step_end");
    if (deed_.is_ever("wide sum"))
      services_.mesh->world()->all_reduce(at::zeros({deed_.is("wide sum") ? 2 : 1}))->wait();
  }

 private:
  // Past autograd and its counters.
  static void write_to(const Unit& unit) {
    *static_cast<float*>(unit.params().front()->tensor.mutable_data_ptr()) += 1;
  }
  UnitList units_;
};

// Plain gradient descent.
class WrongOptimizer : public Wrong<Optimizer> {
 public:
  using Wrong::Wrong;
  std::vector<Hyper> groups() const override { return {{1e-3, 0, 0}}; }
  int group_of(const Param&) const override { return deed_.is("group") ? 5 : 0; }
  double state_bytes_per_element(const Param&) const override { return 0; }
  void init(const Trainables&) override { deed_.at("init"); }
  void update(const Trainables& chunk, const UpdateArgs& args) override {
    deed_.at("update");
    for (const Trainable& t : chunk) {
      at::Tensor value = t.value;
      if (deed_.is("shape"))
        value.resize_({1});
      else if (deed_.is("memory"))
        value.set_data(at::full(value.sizes(), 1.0f));
      else
        value.sub_(t.grad.mul(args.grad_scale.item<double>() * args.hyper[0][0].item<double>()));
    }
  }
  void state(StateVisitor& visitor) override {
    deed_.at("state");
    at::Tensor none;
    if (deed_.is("state")) visitor.tensor("moment", none, {});
  }
};

class WrongAttention : public Wrong<Attention> {
 public:
  using Wrong::Wrong;
  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.dtypes = {at::kFloat};
    can.gqa = can.returns_lse = true;
    return can;
  }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    deed_.at("forward");
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, args.causal, {}, args.scale);
    out = out.transpose(1, 2);
    if (deed_.is("no out")) out = at::Tensor();
    if (deed_.is("double out")) out = out.to(at::kDouble);
    if (deed_.is("no lse")) lse = at::Tensor();
    return {q, k, v, out, lse, {}};
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& s, const AttentionArgs& args) const override {
    deed_.at("backward");
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dout.transpose(1, 2), s.q.transpose(1, 2), s.k.transpose(1, 2), s.v.transpose(1, 2), s.out.transpose(1, 2),
        s.lse, 0.0, args.causal, {}, args.scale);
    if (deed_.is("two gradients")) return {dq.transpose(1, 2), dk.transpose(1, 2)};
    if (deed_.is("no dk")) return {dq.transpose(1, 2), at::Tensor(), dv.transpose(1, 2)};
    if (deed_.is("turned dq")) return {dq, dk.transpose(1, 2), dv.transpose(1, 2)};
    return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)};
  }
};

// Gives every parameter its place, and none to the optimizer.
class WrongDataParallel : public Wrong<DataParallel> {
 public:
  using Wrong::Wrong;
  void attach(UnitList& units) override {
    for (const UnitPtr& unit : units.units)
      for (const ParamPtr& param : unit->params())
        param->tensor = at::zeros(param->layout.local_shape(*services_.mesh));
  }
  std::vector<Trainables> trainables() override { return {}; }
};

class WrongHeld : public Held {
 public:
  WrongHeld(std::unique_ptr<Held> inner, const Deed& deed) : inner_(std::move(inner)), deed_(deed) {}
  ~WrongHeld() override { deed_.at("destructor of held"); }
  Tensors restore() override { return inner_->restore(); }

 private:
  const std::unique_ptr<Held> inner_;
  const Deed& deed_;
};

class WrongRecompute : public Wrong<Recompute> {
 public:
  using Wrong::Wrong;
  void step_end(StepContext&) override {
    if (deed_.is("barrier")) services_.mesh->world()->barrier();
  }
  Keep keep(const Region& region) const override { return region.name.empty() ? Keep::input : Keep::all; }
  std::unique_ptr<Held> hold(Tensors inputs) const override {
    if (deed_.is("no hold")) return nullptr;
    if (deed_.is("empty hold")) inputs.clear();
    return std::make_unique<WrongHeld>(Recompute::hold(std::move(inputs)), deed_);
  }
};

class WrongPrecision : public Wrong<Precision> {
 public:
  using Wrong::Wrong;
  void build(Builder& builder) override { put_wrong_layers(builder, deed_); }
  Dtypes dtypes() const override {
    deed_.at("dtypes");
    return {at::kFloat, at::kFloat, at::kFloat, at::kFloat};
  }
  std::optional<LossScaling> loss_scaling() const override {
    deed_.at("loss_scaling");
    return std::nullopt;
  }
  bool skips_not_finite() const override {
    deed_.at("skips_not_finite");
    return false;
  }
};

}  // namespace drivetrain::misdeeds
