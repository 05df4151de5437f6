// Adam with decoupled weight decay (types AdamW and Adam) or with L2 regularisation (type Adam, adam_w_mode = false),
// on the CPU. The formula is in adam_loop.h, the option names are DeepSpeed's; beta1 is the groups' momentum, so
// schedules can move it. Moments have the dtype of the values (float32) and their layout.
#include <drivetrain/optimizer.h>

#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <map>
#include <utility>

#include <drivetrain/services.h>
#include <drivetrain/weight_decay.h>

#include "adam_loop.h"

namespace {

using namespace drivetrain;

struct AdamOptions : WeightDecay {
  double lr = 1e-3, eps = 1e-8;
  std::vector<double> betas = {0.9, 0.999};
  bool bias_correction = true, adam_w_mode = true, amsgrad = false, torch_adam = false, fp32_optimizer_states = true;
};

OptionTable adam_table() {
  TableBuilder<AdamOptions> t;
  t.field("lr", &AdamOptions::lr, "learning rate where no scheduler sets one").at_least(0);
  t.field("betas", &AdamOptions::betas, "decay rates of both moments, below 1").length(2).range(0, 1);
  t.field("eps", &AdamOptions::eps, "added to the root of the second moment").at_least(0);
  add_weight_decay(t);
  t.field("bias_correction", &AdamOptions::bias_correction, "divide the moments by 1 - beta^step");
  t.field("adam_w_mode", &AdamOptions::adam_w_mode,
          "decoupled decay; false is L2 regularisation and counts for type Adam only");
  t.field("amsgrad", &AdamOptions::amsgrad, "only false");
  t.field("torch_adam", &AdamOptions::torch_adam, "accepted for DeepSpeed's sake, without effect");
  t.field("fp32_optimizer_states", &AdamOptions::fp32_optimizer_states, "only true: moments are float32");
  t.refused("max_grad_norm", "use gradient_clipping at the top level of the file");
  return t;
}

struct Moments {
  ParamPtr param;
  Layout layout;
  at::Tensor m, v;
};

class Adam : public Optimizer {
 public:
  using Options = AdamOptions;
  static OptionTable options() { return adam_table(); }

  Adam(const Options& options, const Services& services) : Adam(options, "optimizer/adam", !options.adam_w_mode) {}

  std::vector<Hyper> groups() const override { return decay_groups(options_, options_.lr, options_.betas[0]); }
  int group_of(const Param& param) const override { return decay_group(options_, param); }
  double state_bytes_per_element() const override { return 8; }
  std::string difference_note(const std::vector<ParamPtr>& params) const override {
    return decay_note(options_, params);
  }

  void init(const Trainables& all) override {
    moments_.clear();
    for (const Trainable& t : all) {
      if (!t.value.device().is_cpu())
        throw fail(ErrorCode::config, name_, " works on the CPU only; ", t.param->name, " is on ",
                   t.value.device().str());
      moments_[key(t)] = {t.param, t.layout, at::zeros_like(t.value), at::zeros_like(t.value)};
    }
  }

  void update(const Trainables& chunk, const UpdateArgs& args) override {
    if (*args.skip.const_data_ptr<bool>()) return;
    const int64_t step = *args.step.const_data_ptr<int64_t>() + 1;
    const double grad_scale = *args.grad_scale.const_data_ptr<double>();
    for (const Trainable& t : chunk) {
      const double* hyper = args.hyper.const_data_ptr<double>() + 3 * t.group;
      const auto found = moments_.find(key(t));
      if (found == moments_.end()) throw fail(ErrorCode::internal, name_, ": ", t.param->name, " was not in init");
      apply(t, found->second, factors({hyper[0], hyper[1], hyper[2]}, step, grad_scale));
    }
  }

  void state(StateVisitor& visitor) override {
    for (auto& [key, state] : moments_) {
      visitor.tensor(state.param->name + ".exp_avg", state.m, state.layout);
      visitor.tensor(state.param->name + ".exp_avg_sq", state.v, state.layout);
    }
  }

 protected:
  Adam(const Options& options, const char* name, bool l2) : options_(options), name_(name), l2_(l2) {
    for (const double beta : options.betas)
      if (beta >= 1) throw fail(ErrorCode::config, name, ": betas must be below 1; found ", beta);
    if (options.amsgrad) throw fail(ErrorCode::config, name, ": amsgrad is not in this version; remove it");
    if (!options.fp32_optimizer_states)
      throw fail(ErrorCode::config, name, ": fp32_optimizer_states = false is not in this version; remove it");
  }

 private:
  // A parameter may be updated in parts: by name and first element, an order that is the same on every run.
  using Key = std::pair<std::string, int64_t>;
  static Key key(const Trainable& t) { return {t.param->name, t.layout.begin}; }

  AdamStep factors(const Hyper& hyper, int64_t step, double grad_scale) const {
    const double beta1 = hyper.momentum, beta2 = options_.betas[1], k = static_cast<double>(step);
    const bool correct = options_.bias_correction;
    AdamStep s;
    s.grad_scale = grad_scale, s.beta1 = beta1, s.beta2 = beta2, s.eps = options_.eps;
    s.l2 = l2_ ? hyper.weight_decay : 0;
    s.shrink = l2_ ? 1 : 1 - hyper.lr * hyper.weight_decay;
    s.step_size = hyper.lr / (correct ? 1 - std::pow(beta1, k) : 1);
    s.root_scale = 1 / std::sqrt(correct ? 1 - std::pow(beta2, k) : 1);
    return s;
  }

  static void apply(const Trainable& t, Moments& moments, const AdamStep& step) {
    const at::Tensor grad = t.grad.to(t.value.scalar_type());  // the same tensor if the dtypes agree
    const int64_t n = t.value.numel();
    if (t.value.scalar_type() == at::kDouble)
      adam_loop(t.value.mutable_data_ptr<double>(), grad.const_data_ptr<double>(), moments.m.mutable_data_ptr<double>(),
                moments.v.mutable_data_ptr<double>(), n, step);
    else
      adam_loop(t.value.mutable_data_ptr<float>(), grad.const_data_ptr<float>(), moments.m.mutable_data_ptr<float>(),
                moments.v.mutable_data_ptr<float>(), n, step);
    if (!t.working.is_same(t.value)) t.working.copy_(t.value);
  }

  const Options options_;
  const char* const name_;
  const bool l2_;
  std::map<Key, Moments> moments_;
};

// DeepSpeed's type AdamW is decoupled whatever adam_w_mode says.
class AdamW : public Adam {
 public:
  AdamW(const Options& options, const Services& services) : Adam(options, "optimizer/adamw", false) {
    if (!options.adam_w_mode)
      services.log.warning(
          "optimizer/adamw: adam_w_mode = false has no effect with type AdamW, as in DeepSpeed; "
          "type Adam heeds it");
  }
};

}  // namespace

DRIVETRAIN_PLUGINS(DRIVETRAIN_ENTRY(drivetrain::Optimizer, "adamw", AdamW),
                   DRIVETRAIN_ENTRY(drivetrain::Optimizer, "adam", Adam))
