// Twenty steps of a whole small model, in float32 by the plugin with gradients of its own weights, in float64 by the
// formulas of Muon and AdamW written anew, with gradients of theirs.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include <drivetrain/mesh.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/optimizer/updates.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test::model_steps {
namespace {

// More words than columns, since the iteration would raise the rounding errors in a direction that no gradient has.
constexpr int64_t kWords = 61, kHidden = 24, kInner = 40, kTokens = 128, kSteps = 20;

enum Weight : size_t { embedding, gain, into, out_of, output, kWeights };

struct Shape {
  const char* name;
  std::vector<int64_t> shape;
  ParamRole role;
};
const Shape kShapes[kWeights] = {{"embedding", {kWords, kHidden}, ParamRole::embedding},
                                 {"norm.gain", {kHidden}, ParamRole::norm},
                                 {"mlp.in", {kInner, kHidden}, ParamRole::matrix},
                                 {"mlp.out", {kHidden, kInner}, ParamRole::matrix},
                                 {"output", {kWords, kHidden}, ParamRole::output}};
bool is_matrix(size_t i) { return kShapes[i].role == ParamRole::matrix; }

using Weights = std::vector<at::Tensor>;

// Gradients of the mean loss over tokens that change with the step: an embedding, an MLP beside a residual, an output
// layer. In the type of the weights.
Weights gradients(const Weights& weights, int64_t step) {
  std::vector<int64_t> ids, next;
  for (int64_t i = 0; i < kTokens; ++i)
    ids.push_back((i * i + 3 * step) % kWords), next.push_back((i * i * i + 5 * i + step) % kWords);
  Weights w;
  for (const at::Tensor& one : weights) w.push_back(one.detach().clone().set_requires_grad(true));
  const at::Tensor x = w[embedding].index_select(0, at::tensor(ids, at::kLong));
  const at::Tensor normed = x / (x * x).mean(-1, true).add(1e-5).sqrt() * w[gain];
  const at::Tensor inner = at::tanh(at::matmul(normed, w[into].t()));
  const at::Tensor logits = at::matmul(x + at::matmul(inner, w[out_of].t()), w[output].t());
  const at::Tensor chosen = at::log_softmax(logits, -1).gather(1, at::tensor(next, at::kLong).unsqueeze(1));
  chosen.mean().neg().backward();
  Weights grads;
  for (const at::Tensor& one : w) grads.push_back(one.grad());
  return grads;
}

struct Rates {
  double muon = 0.02, adam = 3e-3, decay = 0.1, momentum = 0.95, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
};

at::Tensor orthogonal(const at::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / std::max(x.norm().item<double>(), 1e-7);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor gram = at::matmul(x, x.t());
    x = 3.4445 * x + at::matmul(-4.7750 * gram + 2.0315 * at::matmul(gram, gram), x);
  }
  return tall ? x.t() : x;
}

// What torch.optim.Muon and torch.optim.AdamW do, in float64.
struct Formulas {
  Rates r;
  Weights first, second;
  void update(Weights& w, const Weights& grads, int64_t step) {
    for (size_t i = 0; i < w.size(); ++i) {
      if (first.size() <= i) first.push_back(at::zeros_like(w[i])), second.push_back(at::zeros_like(w[i]));
      const at::Tensor& g = grads[i];
      if (is_matrix(i)) {
        first[i] = r.momentum * first[i] + (1 - r.momentum) * g;
        const at::Tensor o = orthogonal(r.momentum * first[i] + (1 - r.momentum) * g);
        const auto rows = static_cast<double>(w[i].size(0)), columns = static_cast<double>(w[i].size(1));
        w[i] = w[i] * (1 - r.muon * r.decay) - r.muon * std::sqrt(std::max(1.0, rows / columns)) * o;
        continue;
      }
      first[i] = r.beta1 * first[i] + (1 - r.beta1) * g;
      second[i] = r.beta2 * second[i] + (1 - r.beta2) * g * g;
      const double t = static_cast<double>(step + 1);
      const at::Tensor m = first[i] / (1 - std::pow(r.beta1, t)), v = second[i] / (1 - std::pow(r.beta2, t));
      w[i] = w[i] * (1 - r.adam * (w[i].dim() > 1 ? r.decay : 0)) - r.adam * m / (v.sqrt() + r.eps);
    }
  }
};

TEST(MuonSteps, twenty_of_a_whole_model_are_those_of_the_formulas_in_float64) {
  for (const char* method : {"standard", "gram"}) {
    Host host;
    const Mesh alone{{}, 0, 1, nullptr};
    const InstalledMaker maker{host.services};
    host.services.mesh = &alone, host.services.plugins = &maker;
    const auto optimizer =
        make_plugin<Optimizer>(host, "muon",
                               concat(R"({"ns_dtype": "float32", "ns_method": ")", method,
                                      R"(", "muon_lr": 0.02, "adam_lr": 3e-3, "weight_decay": 0.1, "eps": 1e-8})"));
    Trainables all;
    Weights start, exact;
    for (size_t i = 0; i < kWeights; ++i) {
      const ParamPtr param = test_param(kShapes[i].name, kShapes[i].shape);
      param->role = kShapes[i].role;
      const int64_t n = param->layout.global_numel();
      const at::Tensor values = uneven_numbers(n, i + 1) * (i == gain ? 0.01 : 0.1) + (i == gain ? 1 : 0);
      all.push_back(trainable(*optimizer, param, values));
      start.push_back(values.view(kShapes[i].shape).to(at::kDouble)), exact.push_back(start.back());
    }
    optimizer->init(all);
    Formulas formulas;
    for (int64_t step = 0; step < kSteps; ++step) {
      Weights ours;
      for (size_t i = 0; i < kWeights; ++i) ours.push_back(all[i].value.view(kShapes[i].shape));
      const Weights grads = gradients(ours, step);
      for (size_t i = 0; i < kWeights; ++i) all[i].grad.copy_(grads[i].reshape({-1}));
      optimizer->update(all, update_args(*optimizer, step));
      formulas.update(exact, gradients(exact, step), step);
    }
    for (size_t i = 0; i < kWeights; ++i) {
      const at::Tensor ours = all[i].value.view(kShapes[i].shape).to(at::kDouble);
      const double moved = (exact[i] - start[i]).norm().item<double>();
      EXPECT_GT(moved, 0.01) << kShapes[i].name;
      EXPECT_LT((ours - exact[i]).norm().item<double>() / moved, 1e-5) << method << " " << kShapes[i].name;
    }
  }
}

}  // namespace
}  // namespace drivetrain::test::model_steps
