#include <drivetrain/testkit/strategy/chain.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <random>

#include <drivetrain/mesh.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/plugins.h>

namespace drivetrain::test {

Chain::Chain(const std::string& options, Strategy* strategy, const std::function<void(Builder&)>& decorate,
             const std::function<void(Builder&)>& decorate_last)
    : model(installed_plugins().make<Model>("gpt", options, host.services)) {
  build(strategy, decorate, decorate_last);
}

Chain::Chain(const Subject& subject)
    : model(installed_plugins().make<Model>(subject.kind, subject.name, subject.options, host.services)) {
  build(nullptr, {}, {});
  vocabulary = facts.vocab_size;
}

void Chain::build(Strategy* strategy, const std::function<void(Builder&)>& decorate,
                  const std::function<void(Builder&)>& decorate_last) {
  const std::shared_ptr<Attention> standard = installed_plugins().make<Attention>("standard", "{}", host.services);
  facts = model->facts();
  const Mesh mesh({}, 0, 1, nullptr);
  Builder builder{nullptr, standard, mesh, facts};
  builder.weight_rules = [&](const std::string& format) { return model->weight_rules(format); };
  builder.layers = make_plain_layers(builder.attention());
  if (decorate) decorate(builder);
  if (strategy) strategy->build(builder);
  if (decorate_last) decorate_last(builder);
  builder.wrap_attention([&](std::shared_ptr<Attention> inner) {
    return attention = std::make_shared<WatchedAttention>(std::move(inner));  // after the build of the one under test
  });
  held_ = builder.finish_attention();
  units.units = model->build(*builder.layers);
  if (strategy) strategy->attach(units);
}

void Chain::fill(at::ScalarType dtype, const std::set<std::string>& frozen) {
  for (const ParamPtr& param : units.all()) {
    at::Tensor flat = at::empty({param->layout.global_numel()}, at::TensorOptions(at::kFloat));
    fill_normal(flat, 5, param->name, 0, param->layout.global_shape.size() > 1 ? 0.3 : 0.2);
    if (param->init.kind == InitRule::Kind::ones) flat.add_(1);
    param->trainable = !frozen.contains(param->name);
    param->tensor = flat.view(param->layout.global_shape).to(dtype).set_requires_grad(param->trainable);
    param->grad = param->trainable ? at::zeros(param->layout.global_shape, param->tensor.options().requires_grad(false))
                                   : at::Tensor();
    param->restart_grad();
  }
}

void Chain::set_batch(int64_t B, int64_t S, int64_t micro) {
  at::Tensor tokens = at::empty({B, S}, at::TensorOptions(at::kLong)), labels = at::empty({B, S}, tokens.options());
  std::mt19937 engine(11 + static_cast<unsigned>(micro));
  for (int64_t i = 0; i < B * S; ++i) {
    tokens.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(engine() % static_cast<unsigned>(vocabulary));
    labels.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(engine() % static_cast<unsigned>(vocabulary));
  }
  context.batch_ = {tokens, labels, 100 + micro * B, B * S, {}, {}, {}};
}

PassResult Chain::forward() {
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

PassResult Chain::forward_and_backward(Part part) {
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

void Chain::backward_weight() {
  context.visit_.part = Part::weight;
  for (size_t i = units.units.size(); i-- > 0;) units.units[i]->backward_weight(context, saved[i]);
}

std::map<std::string, at::Tensor> slots(const Chain& chain) {
  std::map<std::string, at::Tensor> all;
  for (const ParamPtr& param : chain.units.all())
    if (param->trainable) all[param->name] = param->grad.clone();
  return all;
}

void expect_same_bits(const Tensors& a, const Tensors& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(equal_tensors(a[i], b[i])) << what << " " << i;
}
void expect_same_bits(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, slot] : a) EXPECT_TRUE(equal_tensors(slot, b.at(name))) << name;
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  const at::Tensor a = found.detach().to(at::kDouble), b = wanted.detach().to(at::kDouble);
  const double largest = b.abs().max().item<double>(), difference = (a - b).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * largest) << what << ", largest " << largest;
}

}  // namespace drivetrain::test
