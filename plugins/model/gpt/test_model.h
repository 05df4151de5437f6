// Shared by the tests of this folder: a model built on plain layers with an attention by the formula, filled with
// float64 values, and its forward and backward over the whole chain.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>

#include <drivetrain/model.h>

#include <drivetrain/testkit/attention/suite.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {

inline std::unique_ptr<Model> gpt(const std::string& options) {
  const Host host;
  return make_plugin<Model>(host, "gpt", options);
}

class FormulaAttention : public Attention {
 public:
  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.window = can.softcap = true;
    return can;
  }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    const AttentionResult r = attention_reference(q, k, v, at::zeros(q.sizes(), q.options()), args);
    return {q, k, v, r.out.to(q.scalar_type()), r.lse, {}};
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& s, const AttentionArgs& args) const override {
    const AttentionResult r = attention_reference(s.q, s.k, s.v, dout, args);
    return {r.dq.to(s.q.scalar_type()), r.dk.to(s.q.scalar_type()), r.dv.to(s.q.scalar_type())};
  }
};

class TestContext : public StepContext {
 public:
  int64_t step() const override { return 1; }
  Mode mode() const override { return mode_; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view site) const override {
    return {7, 1, hash_name(site), batch_.first_sample, activation_positions()};
  }
  std::vector<RowRange> activation_positions() const override {
    return activation_positions_.empty() ? positions() : activation_positions_;
  }
  Keep keep(std::string_view region) const override {
    const auto found = keep_.find(std::string(region));
    return found == keep_.end() ? Keep::all : found->second;
  }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}
  Batch batch_;
  Mode mode_ = Mode::train;
  Visit visit_;
  std::vector<RowRange> positions_;             // for the batches to come; empty: all
  std::vector<RowRange> activation_positions_;  // empty: those of the batch
  std::map<std::string, Keep> keep_;
};

struct BuiltModel {
  const std::shared_ptr<Attention> attention = std::make_shared<FormulaAttention>();
  const std::shared_ptr<LayerFactory> layers = make_plain_layers(attention);
  UnitList chain;
  TestContext context;

  explicit BuiltModel(Model& model) { chain.units = model.build(*layers); }
  BuiltModel(Model& model, LayerFactory& others) { chain.units = model.build(others); }

  // Every parameter gets float64 memory and a slot; values by `value(param)`.
  template <class Value>
  void fill(const Value& value) {
    for (const ParamPtr& param : chain.all()) {
      const at::Tensor t = value(*param).to(at::kDouble).contiguous();
      EXPECT_EQ(t.sizes(), at::IntArrayRef(param->layout.global_shape)) << param->name;
      param->tensor = t.clone().set_requires_grad(true);
      param->grad = at::zeros(t.sizes(), t.options());
      param->restart_grad();
    }
  }
  void fill_by_rule() {
    fill([](const Param& param) {
      const auto& shape = param.layout.global_shape;
      at::Tensor t = param.init.kind == InitRule::Kind::ones ? at::ones(shape) : at::zeros(shape);
      at::Tensor flat = t.view({-1});
      if (param.init.kind == InitRule::Kind::normal) fill_normal(flat, 3, param.name, 0, param.init.std);
      return t;
    });
  }

  // What the last unit returns: the summed loss, or logits without labels.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels, int64_t first_sample = 0) {
    context.batch_ = {tokens, labels, first_sample, labels.defined() ? labels.numel() : 0, context.positions_};
    saved_.assign(chain.units.size(), Saved{});
    Tensors x = {tokens};
    for (size_t i = 0; i < chain.units.size(); ++i) x = chain.units[i]->forward(x, context, saved_[i]);
    return x[0];
  }
  void backward(Part part = Part::whole) {
    context.visit_.direction = Direction::backward;
    context.visit_.part = part;
    Tensors dy = {at::ones({}, at::kDouble)};
    for (size_t i = chain.units.size(); i-- > 0;) dy = chain.units[i]->backward(dy, context, saved_[i]);
    if (part == Part::input)
      for (size_t i = chain.units.size(); i-- > 0;) chain.units[i]->backward_weight(context, saved_[i]);
    context.visit_ = {};
  }

 private:
  std::vector<Saved> saved_;
};

}  // namespace drivetrain::test
