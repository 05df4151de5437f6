// The built model/gpt in two forms, on its own blocks and on those of a strategy under test, with the same numbers in
// both: what suite.h compares. Legend: B batch, S sequence.
#pragma once

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <random>
#include <set>

#include <drivetrain/mesh.h>
#include <drivetrain/model.h>
#include <drivetrain/strategy.h>

#include <drivetrain/toolkit/layers/plain_layers.h>
#include "plugin/registry.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {

// Answers as a run would; every answer can be set.
struct ChainContext : StepContext {
  int64_t step() const override { return 3; }
  Mode mode() const override { return mode_; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view site) const override {
    return {7, 3, hash_name(site), batch_.first_sample, activation_positions()};
  }
  std::vector<RowRange> activation_positions() const override {
    return activation_positions_.empty() ? positions() : activation_positions_;
  }
  Keep keep(std::string_view region) const override {
    const auto found = keep_.find(std::string(region));
    return found == keep_.end() ? Keep::all : found->second;
  }
  void metric(const std::string&, const at::Tensor&) override {}
  Batch batch_;
  Mode mode_ = Mode::train;
  Visit visit_;
  std::vector<RowRange> activation_positions_;  // empty: those of the batch
  std::map<std::string, Keep> keep_;
};

// Remembers what an attention returned, without holding it.
class WatchedAttention : public Attention {
 public:
  explicit WatchedAttention(std::shared_ptr<Attention> inner) : inner_(std::move(inner)) {}
  AttentionAbilities abilities() const override { return inner_->abilities(); }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    AttentionState state = inner_->forward(q, k, v, args);
    ++forwards;
    for (const at::Tensor& t : {state.q, state.out, state.lse}) seen.emplace_back(t.getIntrusivePtr());
    return state;
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    return inner_->backward(dout, state, args);
  }
  int64_t alive() const {
    int64_t count = 0;
    for (const auto& t : seen) count += t.expired() ? 0 : 1;
    return count;
  }
  mutable std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> seen;
  mutable int64_t forwards = 0;

 private:
  const std::shared_ptr<Attention> inner_;
};

// What one pass over the chain gave: by unit the sum of what it returned, and the gradient of what it got.
struct PassResult {
  Tensors outputs, gradients;
};

class Chain {
 public:
  // `options`: of model/gpt. `strategy` may be null. `decorate` acts on the builder first, as a plugin further inside
  // would, `decorate_last` after the strategy.
  Chain(const std::string& options, Strategy* strategy, const std::function<void(Builder&)>& decorate = {},
        const std::function<void(Builder&)>& decorate_last = {})
      : model_(create<Model>("gpt", options)) {
    const std::shared_ptr<Attention> standard = create<Attention>("standard", "{}");
    facts = model_->facts();
    const Mesh mesh({}, 0, 1, nullptr);
    Builder builder{nullptr, standard, mesh, facts};
    builder.layers = make_plain_layers(builder.attention());
    if (decorate) decorate(builder);
    if (strategy) strategy->build(builder);
    if (decorate_last) decorate_last(builder);
    builder.wrap_attention([&](std::shared_ptr<Attention> inner) {
      return attention = std::make_shared<WatchedAttention>(std::move(inner));  // after the build of the one under test
    });
    held_ = builder.finish_attention();
    units.units = model_->build(*builder.layers);
    if (strategy) strategy->attach(units);
  }

  // Values and slots by name, biases and gains not trivial. Parameters named in `frozen` get no slot at all.
  void fill(at::ScalarType dtype, const std::set<std::string>& frozen = {}) {
    for (const ParamPtr& param : units.all()) {
      at::Tensor flat = at::empty({param->layout.global_numel()}, at::TensorOptions(at::kFloat));
      fill_normal(flat, 5, param->name, 0, param->layout.global_shape.size() > 1 ? 0.3 : 0.2);
      if (param->init.kind == InitRule::Kind::ones) flat.add_(1);
      param->trainable = !frozen.contains(param->name);
      param->tensor = flat.view(param->layout.global_shape).to(dtype).set_requires_grad(param->trainable);
      param->grad = param->trainable
                        ? at::zeros(param->layout.global_shape, param->tensor.options().requires_grad(false))
                        : at::Tensor();
      param->restart_grad();
    }
  }

  void set_batch(int64_t B, int64_t S, int64_t micro = 0) {
    at::Tensor tokens = at::empty({B, S}, at::TensorOptions(at::kLong)), labels = at::empty({B, S}, tokens.options());
    std::mt19937 engine(11 + static_cast<unsigned>(micro));
    for (int64_t i = 0; i < B * S; ++i) {
      tokens.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(engine() % kVocabulary);
      labels.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(engine() % kVocabulary);
    }
    context.batch_ = {tokens, labels, 100 + micro * B, B * S, {}};
  }

  PassResult forward() {
    PassResult result;
    saved.assign(units.units.size(), Saved{});
    context.visit_ = {};
    Tensors x = {context.batch_.tokens_BS};
    for (size_t i = 0; i < units.units.size(); ++i) {
      x = units.units[i]->forward(x, context, saved[i]);
      const bool loss = i + 1 == units.units.size();  // filled as late as in backward
      result.outputs.push_back(loss ? x[0] : x.size() == 1 ? x[0].clone() : at::add(x[0], x[1]));
    }
    return result;
  }
  PassResult forward_and_backward(Part part = Part::whole) {
    PassResult result = forward();
    context.visit_.direction = Direction::backward;
    context.visit_.part = part;
    Tensors dy = {at::full({}, 0.5, at::kDouble)};
    for (size_t i = units.units.size(); i-- > 0;) {
      dy = units.units[i]->backward(dy, context, saved[i]);
      if (i > 0) result.gradients.push_back(dy[0].clone());
    }
    result.outputs.back() = result.outputs.back().clone();
    return result;
  }
  void backward_weight() {
    context.visit_.part = Part::weight;
    for (size_t i = units.units.size(); i-- > 0;) units.units[i]->backward_weight(context, saved[i]);
  }

  static constexpr int64_t kVocabulary = 13;
  std::shared_ptr<WatchedAttention> attention;
  ModelFacts facts;
  UnitList units;
  ChainContext context;
  std::vector<Saved> saved;
  Host host;

 private:
  static const Registry& registry() {
    static const Registry built(SearchPath::standard({}, {}, ""));
    return built;
  }
  template <class Kind>
  std::shared_ptr<Kind> create(const std::string& name, const std::string& json) const {
    Problems problems;
    const auto options =
        registry().options(Kind::kKind, name).parse(parse_json(json, "test"), name, "params", problems);
    problems.throw_if_any();
    return registry().create<Kind>(name, options.get(), host.services);
  }

  std::shared_ptr<Model> model_;
  std::shared_ptr<Attention> held_;
};

// Every gradient slot, by name.
inline std::map<std::string, at::Tensor> slots(const Chain& chain) {
  std::map<std::string, at::Tensor> all;
  for (const ParamPtr& param : chain.units.all())
    if (param->trainable) all[param->name] = param->grad.clone();
  return all;
}

inline void expect_same_bits(const Tensors& a, const Tensors& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << what << " " << i;
}
inline void expect_same_bits(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, slot] : a) EXPECT_TRUE(at::equal(slot, b.at(name))) << name;
}

// Differences relative to the tensor's largest element.
inline void expect_near(const at::Tensor& found, const at::Tensor& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  const at::Tensor a = found.detach().to(at::kDouble), b = wanted.detach().to(at::kDouble);
  const double largest = b.abs().max().item<double>(), difference = (a - b).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * largest) << what << ", largest " << largest;
}

}  // namespace drivetrain::test
