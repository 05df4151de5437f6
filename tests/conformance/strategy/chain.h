// The installed model/gpt in two forms, on its own blocks and on those of a strategy under test, with the same numbers
// in both: what suite.h compares. Or a model under test, for its own suite. Legend: B batch, S sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/attention.h>
#include <drivetrain/model.h>
#include <drivetrain/strategy.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/suite.h>

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
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
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
        const std::function<void(Builder&)>& decorate_last = {});
  // A model under test, with its own layers' plain forms.
  explicit Chain(const Subject& model);

  // Values and slots by name, biases and gains not trivial. Parameters named in `frozen` get no slot at all.
  void fill(at::ScalarType dtype, const std::set<std::string>& frozen = {});

  void set_batch(int64_t B, int64_t S, int64_t micro = 0);

  PassResult forward();
  PassResult forward_and_backward(Part part = Part::whole);
  void backward_weight();

  static constexpr int64_t kVocabulary = 13;
  int64_t vocabulary = kVocabulary;  // tokens of set_batch are below it
  std::shared_ptr<WatchedAttention> attention;
  ModelFacts facts;
  UnitList units;
  ChainContext context;
  std::vector<Saved> saved;
  Host host;
  const std::shared_ptr<Model> model;

 private:
  void build(Strategy* strategy, const std::function<void(Builder&)>& decorate,
             const std::function<void(Builder&)>& decorate_last);

  std::shared_ptr<Attention> held_;
};

// Every gradient slot, by name.
std::map<std::string, at::Tensor> slots(const Chain& chain);

void expect_same_bits(const Tensors& a, const Tensors& b, const char* what);
void expect_same_bits(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b);
// Differences relative to the tensor's largest element.
void expect_near(const at::Tensor& found, const at::Tensor& wanted, double tolerance, const std::string& what);

}  // namespace drivetrain::test
