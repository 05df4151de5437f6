// Lion: the sign of a moving average of gradients, scaled by the learning rate.
//
// Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2:
//   p = p - lr (sign(beta1 m + (1 - beta1) g) + weight_decay p),  then  m = beta2 m + (1 - beta2) g
#include <drivetrain/optimizer.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/schedule/weight_decay.h>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros_like.h>

#include <map>

namespace {

using namespace drivetrain;

class NewPlugin : public Optimizer {
 public:
  struct Options : WeightDecay {
    double lr = 1e-4;
    std::vector<double> betas = {0.9, 0.99};
  };
  static OptionTable options() {
    TableBuilder<Options> t;
    t.field("lr", &Options::lr, "learning rate where no scheduler sets one").at_least(0);
    t.field("betas", &Options::betas, "weights of the average in the update and in the next average");
    t.length(2).range(0, 1);
    add_weight_decay(t);
    return t;
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  std::vector<Hyper> groups() const override { return decay_groups(options_, options_.lr, 0); }
  int group_of(const Param& param) const override { return decay_group(options_, param); }
  double state_bytes_per_element(const Param&) const override { return 4; }

  void init(const Trainables& all) override {
    for (const Trainable& t : all) averages_[key(t)] = {at::zeros_like(t.value), t.layout};
  }

  // A parameter may come in parts, in 16 bits, or in a step that changes nothing. Element by element the arithmetic is
  // the same wherever a tensor is cut, so that parts have the bits of the whole.
  void update(const Trainables& chunk, const UpdateArgs& args) override {
    if (*args.skip.const_data_ptr<bool>()) return;
    const auto scale = static_cast<float>(*args.grad_scale.const_data_ptr<double>());
    for (const Trainable& t : chunk) {
      const auto found = averages_.find(key(t));
      if (found == averages_.end())
        throw fail(ErrorCode::internal, "optimizer/new_plugin: ", t.param->name, " was not in init");
      const double* const hyper = args.hyper.const_data_ptr<double>() + 3 * t.group;
      step(t.value, t.grad.to(at::kFloat), found->second.average, static_cast<float>(hyper[0]),
           static_cast<float>(hyper[1]), scale);
      if (!t.working.is_same(t.value)) t.working.copy_(t.value);
    }
  }

  // What a restart needs, by names that do not depend on the number of ranks.
  void state(StateVisitor& visitor) override {
    for (auto& [key, state] : averages_) visitor.tensor(key.first + ".exp_avg", state.average, state.layout);
  }

 private:
  struct State {
    at::Tensor average;
    Layout layout;
  };
  using Key = std::pair<std::string, int64_t>;  // name, and the first element of a part
  static Key key(const Trainable& t) { return {t.param->name, t.layout.begin}; }

  void step(const at::Tensor& value, const at::Tensor& grad, const at::Tensor& average, float lr, float decay,
            float scale) const {
    float *p = value.mutable_data_ptr<float>(), *m = average.mutable_data_ptr<float>();
    const float* g = grad.const_data_ptr<float>();
    const auto b1 = static_cast<float>(options_.betas[0]), b2 = static_cast<float>(options_.betas[1]);
    at::parallel_for(0, value.numel(), 32768, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float gradient = g[i] * scale, mixed = b1 * m[i] + (1 - b1) * gradient;
        p[i] -= lr * (static_cast<float>((mixed > 0) - (mixed < 0)) + decay * p[i]);
        m[i] = b2 * m[i] + (1 - b2) * gradient;
      }
    });
  }

  const Options options_;
  std::map<Key, State> averages_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Optimizer, "new_plugin", NewPlugin)
