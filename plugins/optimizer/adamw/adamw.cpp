// Adam with decoupled weight decay (types AdamW and Adam) or with L2 regularisation (type Adam, adam_w_mode = false).
// The option names are DeepSpeed's; beta1 is the groups' momentum, so schedules can move it. Moments are float32 and
// have the layout of the values. The kernel and its formula are in kernels/optimizer; on CUDA an update only enqueues.
#include <drivetrain/optimizer.h>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <map>
#include <utility>

#include <drivetrain/device.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/ops/device_list.h>
#include <drivetrain/toolkit/schedule/weight_decay.h>

#include "kernels/optimizer/adamw.h"

namespace {

using namespace drivetrain;
using kernels::Dtype;
using kernels::kWithCuda;

// Large enough that starting a thread does not show, small enough to share a 768-wide matrix.
constexpr int64_t kGrain = 32768;

#ifdef DRIVETRAIN_WITH_CUDA
void on_cuda(const kernels::Adam& op, const at::Device& device) {
  check_launch(kernels::adam_cuda(op, current_stream(device)), "Adam");
}
void on_cuda(const kernels::AdamMany& op, const at::Device& device) {
  check_launch(kernels::adam_many_cuda(op, current_stream(device)), "Adam");
}
#else
void on_cuda(const kernels::Adam&, const at::Device&) {}
void on_cuda(const kernels::AdamMany&, const at::Device&) {}
#endif

bool is_half(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

Dtype kernel_dtype(at::ScalarType type) {
  return type == at::kBFloat16 ? Dtype::bf16 : type == at::kHalf ? Dtype::f16 : Dtype::f32;
}

// What the kernel reads as it is.
bool readable(const at::Tensor& grad) {
  const at::ScalarType type = grad.scalar_type();
  return type == at::kFloat || is_half(type);
}

// The same step in float64, for values that tests hold in it.
void update_doubles(const kernels::Adam& op, double* p, const double* grad, double* m, double* v) {
  if (*op.scalars.skip) return;
  const double lr = op.scalars.hyper[0], decay = op.scalars.hyper[1], beta1 = op.scalars.hyper[2];
  const double t = static_cast<double>(*op.scalars.step + 1), grad_scale = *op.scalars.grad_scale;
  const double shrink = op.l2 ? 1 : 1 - lr * decay, l2 = op.l2 ? decay : 0;
  const double step_size = lr / (op.bias_correction ? 1 - std::pow(beta1, t) : 1);
  const double root_scale = 1 / std::sqrt(op.bias_correction ? 1 - std::pow(op.beta2, t) : 1);
  for (int64_t i = 0; i < op.n; ++i) {
    const double g = grad[i] * grad_scale + l2 * p[i];
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = op.beta2 * v[i] + (1 - op.beta2) * (g * g);
    p[i] = p[i] * shrink - step_size * m[i] / (std::sqrt(v[i]) * root_scale + op.epsilon);
  }
}

struct AdamOptions : WeightDecay {
  double lr = 1e-3, eps = 1e-8;
  std::vector<double> betas = {0.9, 0.999};
  bool bias_correction = true, adam_w_mode = true, amsgrad = false, torch_adam = false, fp32_optimizer_states = true;
};

OptionTable adam_table() {
  TableBuilder<AdamOptions> t;
  t.field("lr", &AdamOptions::lr, "learning rate where no scheduler sets one")
      .at_least(0)
      .automatic("learning_rate of Hugging Face's Trainer", Value(5e-5));
  t.field("betas", &AdamOptions::betas, "decay rates of both moments, below 1")
      .length(2)
      .range(0, 1)
      .automatic("adam_beta1 and adam_beta2 of Hugging Face's Trainer", Value(Value::Array{0.9, 0.999}));
  t.field("eps", &AdamOptions::eps, "added to the root of the second moment")
      .at_least(0)
      .automatic("adam_epsilon of Hugging Face's Trainer", Value(1e-8));
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
  double state_bytes_per_element(const Param&) const override { return 8; }
  // Copies of 16 bits wait there to be sent; see `staging`.
  double host_bytes_per_element(at::ScalarType param) const override { return is_half(param) ? 2 : 0; }
  std::string difference_note(const std::vector<ParamPtr>& params) const override {
    return decay_note(options_, params);
  }

  void plan(PlanContext& plan) override { plan.capturable(); }

  void init(const Trainables& all) override {
    moments_.clear();
    for (const Trainable& t : all) {
      check_value(t);
      moments_[key(t)] = {t.param, t.layout, at::zeros_like(t.value), at::zeros_like(t.value)};
    }
  }

  void update(const Trainables& chunk, const UpdateArgs& args) override {
    std::map<Types, Launch> launches;
    for (const Trainable& t : chunk) {
      const auto found = moments_.find(key(t));
      if (found == moments_.end()) throw fail(ErrorCode::internal, name_, ": ", t.param->name, " was not in init");
      if (one_of_many(t, args))
        add(launches[types_of(t)], t, found->second);
      else
        step(t, found->second, args);
    }
    for (auto& [types, launch] : launches) run(launch, types, key(chunk.front()), args);
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

  void check_value(const Trainable& t) const {
    const at::Tensor& value = t.value;
    if (!value.is_cpu() && !(kWithCuda && value.is_cuda()))
      throw fail(ErrorCode::config, name_, " as it was built works on the CPU",
                 kWithCuda ? " and on CUDA" : " only (there was no nvcc)", "; ", t.param->name, " is on ",
                 value.device().str());
    if (value.scalar_type() != at::kFloat && !(value.is_cpu() && value.scalar_type() == at::kDouble))
      throw fail(ErrorCode::config, name_, " updates float32 values; those of ", t.param->name, " are ",
                 at::toString(value.scalar_type()), " on ", value.device().str(),
                 ". The precision plugin's master dtype decides");
  }

  // Pointers to the step's scalars are handed on unread: on CUDA they are the device's.
  kernels::Adam common(const Trainable& t, const UpdateArgs& args) const {
    if (args.hyper.device() != t.value.device())
      throw fail(ErrorCode::internal, name_, ": the step's scalars are on ", args.hyper.device().str(), ", ",
                 t.param->name, " on ", t.value.device().str());
    kernels::Adam op;
    op.n = t.value.numel();
    op.beta2 = options_.betas[1], op.epsilon = options_.eps;
    op.l2 = l2_, op.bias_correction = options_.bias_correction;
    op.scalars = {args.hyper.const_data_ptr<double>() + 3 * t.group, args.grad_scale.const_data_ptr<double>(),
                  args.skip.const_data_ptr<bool>(), args.step.const_data_ptr<int64_t>()};
    return op;
  }

  void step(const Trainable& t, Moments& moments, const UpdateArgs& args) {
    kernels::Adam op = common(t, args);
    const bool separate = has_copy(t), in_kernel = copies_in_kernel(t);
    if (t.value.scalar_type() == at::kDouble) {
      const at::Tensor grad = t.grad.to(at::kDouble);
      update_doubles(op, t.value.mutable_data_ptr<double>(), grad.const_data_ptr<double>(),
                     moments.m.mutable_data_ptr<double>(), moments.v.mutable_data_ptr<double>());
      if (separate) copy_to_working(t);
      return;
    }
    const at::Tensor grad = readable(t.grad) ? t.grad : t.grad.to(at::kFloat);
    op.value = t.value.mutable_data_ptr<float>();
    op.m = moments.m.mutable_data_ptr<float>(), op.v = moments.v.mutable_data_ptr<float>();
    op.grad = grad.mutable_data_ptr(), op.grad_dtype = kernel_dtype(grad.scalar_type());
    const bool staged = separate && !in_kernel && t.value.is_cpu() && is_half(t.working.scalar_type());
    const at::Tensor working = staged ? staging(t) : t.working;
    if (in_kernel || staged)
      op.working = working.mutable_data_ptr(), op.working_dtype = kernel_dtype(working.scalar_type());
    if (t.value.is_cuda())
      on_cuda(op, t.value.device());
    else
      at::parallel_for(0, op.n, kGrain, [&](int64_t begin, int64_t end) { kernels::adam_cpu(op, begin, end); });
    if (staged && *op.scalars.skip) return;  // nothing was written to be sent
    if (staged)
      t.working.copy_(working, /*non_blocking=*/true);
    else if (separate && !in_kernel)
      copy_to_working(t);
  }

  // The working copy of a value that is the host's, in the type in which it is sent.
  at::Tensor staging(const Trainable& t) {
    at::Tensor& buffer = staged_[key(t)];
    if (!buffer.defined()) buffer = host_memory(t.value.numel(), t.working.scalar_type(), t.value.is_pinned());
    return buffer;
  }

  // What one launch on a device updates together: gradients of one type, working copies of one type.
  using Types = std::pair<Dtype, Dtype>;
  struct Launch {
    const Trainable* any = nullptr;
    std::vector<kernels::AdamSegment> segments;
    int64_t tiles = 0;
  };

  static bool has_copy(const Trainable& t) { return !t.working.is_same(t.value); }
  static bool copies_in_kernel(const Trainable& t) {
    return has_copy(t) && is_half(t.working.scalar_type()) && t.working.device() == t.value.device();
  }
  static bool one_of_many(const Trainable& t, const UpdateArgs& args) {
    return t.value.is_cuda() && readable(t.grad) && (!has_copy(t) || copies_in_kernel(t)) &&
           args.hyper.size(0) <= kernels::kMostAdamGroups;
  }
  static Types types_of(const Trainable& t) {
    return {kernel_dtype(t.grad.scalar_type()), has_copy(t) ? kernel_dtype(t.working.scalar_type()) : Dtype::bf16};
  }

  static void add(Launch& launch, const Trainable& t, Moments& moments) {
    launch.any = &t;
    launch.segments.push_back({t.value.mutable_data_ptr<float>(), moments.m.mutable_data_ptr<float>(),
                               moments.v.mutable_data_ptr<float>(), t.grad.mutable_data_ptr(),
                               has_copy(t) ? t.working.mutable_data_ptr() : nullptr, t.value.numel(), t.group,
                               launch.tiles});
    launch.tiles += kernels::blocks_of(t.value.numel(), kernels::kAdamTile);
  }

  void run(const Launch& launch, const Types& types, const Key& chunk, const UpdateArgs& args) {
    const at::Device device = launch.any->value.device();
    kernels::AdamMany op;
    op.segments = lists_[{chunk, types}].put(launch.segments, device);
    op.count = static_cast<int64_t>(launch.segments.size()), op.tiles = launch.tiles, op.groups = args.hyper.size(0);
    op.shared = common(*launch.any, args);
    op.shared.scalars.hyper = args.hyper.const_data_ptr<double>();
    op.shared.grad_dtype = types.first, op.shared.working_dtype = types.second;
    on_cuda(op, device);
  }

  // Where `working` is on a device and `value` the host's, the host goes on to the next piece while this one is copied:
  // it writes `value` again only in the next step's update, behind that step's wait for the device. Where it is the
  // other way round the copy follows the kernel on its stream, and what gathers `working` follows that stream.
  static void copy_to_working(const Trainable& t) {
    t.working.copy_(t.value, /*non_blocking=*/t.working.device() != t.value.device());
  }

  const Options options_;
  const char* const name_;
  const bool l2_;
  std::map<Key, Moments> moments_;
  std::map<Key, at::Tensor> staged_;
  std::map<std::pair<Key, Types>, DeviceList<kernels::AdamSegment>> lists_;  // by the first of a chunk
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
