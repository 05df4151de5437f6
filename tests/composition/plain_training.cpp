// Source of the formulas: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2; clipping as
// torch.nn.utils.clip_grad_norm_; schedules as DeepSpeed runtime/lr_schedules.py, update k at their index k - 2.
#include "composition/plain_training.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <drivetrain/safetensors.h>

namespace drivetrain::test {
namespace {

constexpr double kUlp = 0x1p-24;
constexpr double kRoundings = 16;
constexpr double kLossRoundings = 4;

double rate(const Case& c, int64_t step) {
  const CaseSchedule& s = c.schedule;
  if (s.type.empty()) return c.lr;
  const double t = double(step - 2), W = double(s.warmup), T = double(s.total);
  const double rise = t < 0 ? 0 : t >= W ? 1 : s.warmup_type == "linear" ? t / W : std::log(t + 1) / std::log(W);
  if (s.type == "WarmupLR" || (s.type == "WarmupDecayLR" && t < W)) return s.low + (c.lr - s.low) * rise;
  if (s.type == "WarmupDecayLR") return s.low + (c.lr - s.low) * std::max(0.0, (T - t) / (T - W));
  if (t < 0) return 0;
  if (t < W) return c.lr * (s.low + (1 - s.low) * rise);
  return c.lr * (s.low + (1 - s.low) * (1 + std::cos(std::numbers::pi * std::min(1.0, (t - W + 1) / (T - W)))) / 2);
}

struct Slope {
  double loss = 0, largest_logit = 0;
  int64_t tokens = 0;
  Weights gradients;
};

Slope slope(const Case& c, const Weights& weights, int64_t step) {
  Weights leaves;
  for (const auto& [name, w] : weights) leaves[name] = w.detach().clone().set_requires_grad(true);
  const PlainLoss loss =
      plain_loss(c.shape, leaves, c.tokens_KGS[step - 1].narrow(1, 0, c.sequence), c.labels_KGS[step - 1]);
  const at::Tensor mean = loss.sum / double(loss.tokens);
  mean.backward();
  Slope result{mean.item<double>(), loss.largest_logit, loss.tokens, {}};
  for (const auto& [name, leaf] : leaves) result.gradients[name] = leaf.grad();
  return result;
}

double norm(const Weights& tensors) {
  double sum = 0;
  for (const auto& [name, x] : tensors) sum += (x * x).sum().item<double>();
  return std::sqrt(sum);
}

// How large the elements around each one are: in its vector, or in its row and its column of a matrix, because a
// matrix's gradient is a sum of outer products. Exactly zero in rows of absent tokens and positions, where nothing is
// rounded.
at::Tensor around(const at::Tensor& x) {
  const at::Tensor size = x.abs(), all = size.max().clamp_min(1e-300);
  if (x.dim() == 1) return at::ones_like(x) * all;
  return size.amax(0, true) * size.amax(1, true) / all;
}

// The largest |u| that any gradients give in `step`: weights a of m and b of v sum to 1, so |m| <= sqrt(sum a^2 / b)
// sqrt(v).
double largest_move(const Case& c, int64_t step) {
  double sum = 0;
  for (int64_t i = 0; i < step; ++i) {
    const double a = (1 - c.beta1) * std::pow(c.beta1, i) / (1 - std::pow(c.beta1, step));
    const double b = (1 - c.beta2) * std::pow(c.beta2, i) / (1 - std::pow(c.beta2, step));
    sum += a * a / b;
  }
  return std::sqrt(sum);
}

class PlainTrainer {
 public:
  PlainTrainer(const Case& c, const Weights& start) : c_(c), dice_(7), weights_(start) {
    for (const auto& [name, w] : weights_)
      m_[name] = v_[name] = at::zeros_like(w), off_[name] = at::zeros_like(w), error_[name] = at::zeros_like(w);
  }

  PlainStep step(int64_t k) {
    const Slope here = slope(c_, weights_, k);
    PlainStep s{here.loss, norm(here.gradients), rate(c_, k), here.tokens};
    s.loss_tolerance = kLossRoundings * kUlp * (1 + here.largest_logit);
    s.norm_tolerance = kRoundings * kUlp * s.grad_norm;
    Weights moved_by = elsewhere(here, k);
    s.norm_tolerance += 2 * norm(moved_by);
    for (const auto& [name, g] : here.gradients) s.loss_tolerance += (g.abs() * off_[name]).sum().item<double>();

    const bool clips = c_.clip > 0 && s.grad_norm + 1e-6 > c_.clip;
    const double factor = clips ? c_.clip / (s.grad_norm + 1e-6) : 1;
    for (const auto& [name, g] : here.gradients) {
      at::Tensor error = (kRoundings * kUlp * around(g) + 2 * around(moved_by[name])) * factor;
      if (clips) error = error + g.abs() * (factor * s.norm_tolerance / s.grad_norm);
      move(name, g * factor, error, s.lr, k);
    }
    return s;
  }

  const Weights& weights() const { return weights_; }
  const Weights& tolerance() const { return off_; }

 private:
  // How gradients differ where the weights are off.
  Weights elsewhere(const Slope& here, int64_t k) {
    Weights others, difference;
    for (const auto& [name, w] : weights_) {
      at::Tensor signs = at::zeros_like(w);
      for (int64_t i = 0; i < signs.numel(); ++i) signs.mutable_data_ptr<double>()[i] = dice_.chance(0.5) ? 1 : -1;
      others[name] = w + signs * off_[name];
    }
    const Slope there = slope(c_, others, k);
    for (const auto& [name, g] : here.gradients) difference[name] = there.gradients.at(name) - g;
    return difference;
  }

  void move(const std::string& name, const at::Tensor& g, const at::Tensor& error, double lr, int64_t k) {
    at::Tensor &w = weights_[name], &m = m_[name], &v = v_[name], &off = off_[name];
    const double decay = c_.decay_all || w.dim() >= 2 ? c_.weight_decay : 0;
    m = c_.beta1 * m + (1 - c_.beta1) * g;
    v = c_.beta2 * v + (1 - c_.beta2) * g * g;
    const at::Tensor root = (v / (1 - std::pow(c_.beta2, k))).sqrt() + c_.eps;
    w = w * (1 - lr * decay) - lr * (m / (1 - std::pow(c_.beta1, k))) / root;

    error_[name] = at::maximum(error_[name], error);
    const double C = largest_move(c_, k);
    const at::Tensor move_off = ((1 + C) * error_[name] / root).clamp_max(2 * C);
    off = off * (1 - lr * decay) + lr * move_off + 4 * kUlp * (w.abs() + lr);  // the update itself is four roundings
  }

  const Case& c_;
  Dice dice_;
  Weights weights_, m_, v_;
  Weights off_;    // how far a right implementation's weights may be away
  Weights error_;  // of its gradients, the largest so far
};

}  // namespace

PlainRun train_plainly(const Case& c, const Weights& start) {
  PlainTrainer trainer(c, start);
  PlainRun run;
  for (int64_t k = 1; k <= c.steps; ++k) run.steps.push_back(trainer.step(k));
  run.final = trainer.weights();
  run.tolerance = trainer.tolerance();
  return run;
}

Weights read_weights(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  Weights weights;
  for (const std::string& name : file.names()) weights[name] = file.tensor(name).to(at::kDouble);
  return weights;
}

}  // namespace drivetrain::test
