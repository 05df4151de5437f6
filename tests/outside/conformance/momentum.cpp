// Gradient descent with momentum. An option asks for a mistake, which the suite of optimizers has to find.
#include <drivetrain/optimizer.h>

#include <drivetrain/services.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <map>

namespace {

using namespace drivetrain;

struct MomentumOptions {
  double lr = 0.01, momentum = 0.9;
  std::string mistake = "none";
};

class Momentum : public Optimizer {
 public:
  using Options = MomentumOptions;
  static OptionTable options() {
    return table<Options>()
        .field("lr", &Options::lr, "learning rate")
        .field("momentum", &Options::momentum, "how much of the last update is kept")
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "updates_in_skipped_steps", "scales_the_gradient_in_place", "forgets_its_state",
                 "counts_its_calls", "scales_by_the_sum_of_gradients", "reads_the_working_copy",
                 "forgets_the_working_copy", "scales_in_the_type_of_gradients", "promises_less_state",
                 "names_another_group", "takes_what_was_not_in_init", "ignores_the_scale", "ignores_the_rate",
                 "moves_the_values"});
  }
  Momentum(const Options& options, const Services&) : options_(options) {}

  std::vector<Hyper> groups() const override { return {{options_.lr, 0, options_.momentum}}; }
  int group_of(const Param&) const override { return is("names_another_group") ? 1 : 0; }
  double state_bytes_per_element(const Param&) const override { return is("promises_less_state") ? 2 : 4; }

  void init(const Trainables& all) override {
    for (const Trainable& t : all) kept_[key(t)] = {at::zeros_like(t.value), t.layout};
  }

  void update(const Trainables& chunk, const UpdateArgs& args) override {
    if (*args.skip.const_data_ptr<bool>() && !is("updates_in_skipped_steps")) return;
    ++calls_;
    for (const Trainable& t : chunk) {
      if (!kept_.contains(key(t)) && is("takes_what_was_not_in_init")) init({t});
      const auto found = kept_.find(key(t));
      if (found == kept_.end())
        throw fail(ErrorCode::internal, "optimizer/momentum: ", t.param->name, " was not in init");
      Factors factors = factors_of(t, args);
      if (is("scales_the_gradient_in_place")) t.grad.mul_(factors.scale);
      if (is("reads_the_working_copy")) t.value.copy_(t.working);
      if (is("moves_the_values")) t.value.set_data(t.value.clone());
      at::Tensor grad = t.grad;
      if (is("scales_in_the_type_of_gradients")) grad = grad * factors.scale, factors.scale = 1;
      move(t.value, grad.to(at::kFloat), found->second.update, factors);
      if (!t.working.is_same(t.value) && !is("forgets_the_working_copy")) t.working.copy_(t.value);
    }
  }

  void state(StateVisitor& visitor) override {
    if (is("forgets_its_state")) return;
    for (auto& [key, kept] : kept_) visitor.tensor(key.first + ".momentum", kept.update, kept.layout);
  }

 private:
  struct Kept {
    at::Tensor update;
    Layout layout;
  };
  struct Factors {
    double lr, momentum, scale;
  };
  bool is(const char* mistake) const { return options_.mistake == mistake; }

  Factors factors_of(const Trainable& t, const UpdateArgs& args) const {
    const double* hyper = args.hyper.const_data_ptr<double>() + 3 * t.group;
    Factors f{hyper[0], hyper[2], *args.grad_scale.const_data_ptr<double>()};
    if (is("ignores_the_rate")) f.lr = options_.lr;
    if (is("ignores_the_scale")) f.scale = 1;
    if (is("counts_its_calls")) f.lr /= static_cast<double>(calls_);
    if (is("scales_by_the_sum_of_gradients")) f.scale /= t.grad.abs().sum().item<double>();
    return f;
  }

  // Element by element in the same way wherever a tensor is cut: parts give the bits of the whole.
  static void move(const at::Tensor& value, const at::Tensor& grad, const at::Tensor& update, const Factors& f) {
    float *v = value.mutable_data_ptr<float>(), *u = update.mutable_data_ptr<float>();
    const float* g = grad.const_data_ptr<float>();
    const float lr = f.lr, momentum = f.momentum, scale = f.scale;
    for (int64_t i = 0; i < value.numel(); ++i) {
      u[i] = momentum * u[i] + g[i] * scale;
      v[i] -= lr * u[i];
    }
  }
  using Key = std::pair<std::string, int64_t>;  // a parameter may be updated in parts
  static Key key(const Trainable& t) { return {t.param->name, t.layout.begin}; }

  const Options options_;
  std::map<Key, Kept> kept_;
  int64_t calls_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Optimizer, "momentum", Momentum)
