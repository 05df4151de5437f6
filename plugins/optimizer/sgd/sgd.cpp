// Stochastic gradient descent with momentum, as torch.optim.SGD, on the CPU.
//
// Source: Sutskever et al. 2013, "On the importance of initialization and momentum", in PyTorch's form:
//   g = g grad_scale + wd p;  buf = g in the first update, then momentum buf + (1 - dampening) g
//   p = p - lr buf, or with nesterov p = p - lr (g + momentum buf)
// The buffer exists only if momentum is not 0; it has the dtype of the values (float32) and their layout.
#include <drivetrain/optimizer.h>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <utility>

#include <drivetrain/services.h>
#include <drivetrain/toolkit/schedule/weight_decay.h>

namespace {

using namespace drivetrain;

constexpr int64_t kGrain = 32768;

// Factors in double; a float32 loop rounds each once.
struct SgdStep {
  double grad_scale, weight_decay, keep, add, use_buffer, use_grad;  // p -= use_buffer * buf + use_grad * g
};

template <class T>
void sgd_range(T* __restrict p, const T* __restrict g, T* __restrict buffer, int64_t n, const SgdStep& s) {
  const T grad_scale = s.grad_scale, decay = s.weight_decay, keep = s.keep, add = s.add;
  const T use_buffer = s.use_buffer, use_grad = s.use_grad;
  if (!buffer) {
    for (int64_t i = 0; i < n; ++i) p[i] -= use_grad * (g[i] * grad_scale + decay * p[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T grad = g[i] * grad_scale + decay * p[i];
    const T momentum = keep * buffer[i] + add * grad;
    buffer[i] = momentum;
    p[i] -= use_buffer * momentum + use_grad * grad;
  }
}

template <class T>
void sgd_loop(const at::Tensor& value, const at::Tensor& grad, const at::Tensor& buffer, const SgdStep& step) {
  T* p = value.mutable_data_ptr<T>();
  const T* g = grad.const_data_ptr<T>();
  T* b = buffer.defined() ? buffer.mutable_data_ptr<T>() : nullptr;
  at::parallel_for(0, value.numel(), kGrain, [&](int64_t begin, int64_t end) {
    sgd_range<T>(p + begin, g + begin, b ? b + begin : nullptr, end - begin, step);
  });
}

class Sgd : public Optimizer {
 public:
  struct Options : WeightDecay {
    double lr = 1e-3, momentum = 0, dampening = 0;
    bool nesterov = false;
  };
  static OptionTable options() {
    TableBuilder<Options> t;
    t.field("lr", &Options::lr, "learning rate where no scheduler sets one")
        .at_least(0)
        .automatic("learning_rate of Hugging Face's Trainer", Value(5e-5));
    t.field("momentum", &Options::momentum, "how much of the last update is kept").at_least(0);
    t.field("dampening", &Options::dampening, "how much less of the gradient enters the momentum");
    add_weight_decay(t);
    t.field("nesterov", &Options::nesterov, "look one step ahead; wants momentum and no dampening");
    t.refused("max_grad_norm", "use gradient_clipping at the top level of the file");
    return t;
  }

  Sgd(const Options& options, const Services&) : options_(options) {
    if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
      throw fail(ErrorCode::config, "optimizer/sgd: nesterov wants momentum above 0 and dampening 0; found momentum ",
                 options.momentum, ", dampening ", options.dampening);
  }

  std::vector<Hyper> groups() const override { return decay_groups(options_, options_.lr, options_.momentum); }
  int group_of(const Param& param) const override { return decay_group(options_, param); }
  double state_bytes_per_element(const Param&) const override { return options_.momentum == 0 ? 0 : 4; }
  std::string difference_note(const std::vector<ParamPtr>& params) const override {
    return decay_note(options_, params);
  }

  void init(const Trainables& all) override {
    buffers_.clear();
    for (const Trainable& t : all) {
      if (!t.value.device().is_cpu())
        throw fail(ErrorCode::config, "optimizer/sgd works on the CPU only; ", t.param->name, " is on ",
                   t.value.device().str());
      buffers_[key(t)] = {t.param, t.layout, options_.momentum == 0 ? at::Tensor() : at::zeros_like(t.value)};
    }
  }

  void update(const Trainables& chunk, const UpdateArgs& args) override {
    if (*args.skip.const_data_ptr<bool>()) return;
    const bool first = *args.step.const_data_ptr<int64_t>() == 0;
    for (const Trainable& t : chunk) {
      const double* hyper = args.hyper.const_data_ptr<double>() + 3 * t.group;
      const auto found = buffers_.find(key(t));
      if (found == buffers_.end())
        throw fail(ErrorCode::internal, "optimizer/sgd: ", t.param->name, " was not in init");
      const double lr = hyper[0], momentum = hyper[2];
      SgdStep step{*args.grad_scale.const_data_ptr<double>(), hyper[1], momentum,
                   first ? 1 : 1 - options_.dampening,        lr,       0};
      if (options_.nesterov) step.use_buffer = lr * momentum;
      if (options_.nesterov || options_.momentum == 0) step.use_grad = lr;
      apply(t, found->second.buffer, step);
    }
  }

  void state(StateVisitor& visitor) override {
    for (auto& [key, state] : buffers_)
      if (state.buffer.defined()) visitor.tensor(state.param->name + ".momentum_buffer", state.buffer, state.layout);
  }

 private:
  // A parameter may be updated in parts: by name and first element, an order that is the same on every run.
  using Key = std::pair<std::string, int64_t>;
  static Key key(const Trainable& t) { return {t.param->name, t.layout.begin}; }
  struct State {
    ParamPtr param;
    Layout layout;
    at::Tensor buffer;
  };

  static void apply(const Trainable& t, const at::Tensor& buffer, const SgdStep& step) {
    const at::Tensor grad = t.grad.to(t.value.scalar_type());  // the same tensor if the dtypes agree
    if (t.value.scalar_type() == at::kDouble)
      sgd_loop<double>(t.value, grad, buffer, step);
    else
      sgd_loop<float>(t.value, grad, buffer, step);
    if (!t.working.is_same(t.value)) t.working.copy_(t.value);
  }

  const Options options_;
  std::map<Key, State> buffers_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Optimizer, "sgd", Sgd)
