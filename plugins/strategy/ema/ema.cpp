// Exponential moving average of the weights, beside the optimizer's values and cut as they are: each rank averages what
// it updates. The final weights are the averages; see README.md.
//
// Source: Polyak and Juditsky 1992; the update is that of torch.optim.swa_utils.get_ema_multi_avg_fn.
#include <ATen/ops/mul.h>

#include <map>
#include <string>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/planned_update.h>
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>

namespace {

using namespace drivetrain;

// The averages of one parameter's parts where its values are, as long as it exists: the runtime collects values.
class InPlaceOfValues {
 public:
  void put(const at::Tensor& values, const at::Tensor& averages) {
    kept_.emplace_back(values, values.clone());
    values.copy_(averages);
  }
  InPlaceOfValues() = default;
  InPlaceOfValues(const InPlaceOfValues&) = delete;
  ~InPlaceOfValues() {
    for (const auto& [values, own] : kept_) values.copy_(own);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

class Ema : public Strategy, public UpdatePlan {
 public:
  struct Options {
    double decay = 0.999;
    int64_t update_after_step = 0, update_every = 1;
    bool save_final = true;
  };
  static OptionTable options() {
    TableBuilder<Options> t;
    t.field("decay", &Options::decay, "how much of the average stays in an update").range(0, 1);
    t.field("update_after_step", &Options::update_after_step, "up to this step the averages are the weights")
        .at_least(0);
    t.field("update_every", &Options::update_every, "steps between two updates of the averages").at_least(1);
    t.field("save_final", &Options::save_final, "the final weights are the averages; false: the trained weights");
    return t;
  }
  Ema(const Options& options, const Services& services) : options_(options), services_(services) {}

  // Averages lie where the values do. An update reads value and average and writes this one.
  UpdateWork plan_update(PlanContext& ctx, const PlannedUpdate& update) const override {
    const double bytes = 4 * update.elements;
    if (update.on_host)
      ctx.host_memory(MemoryClass::optimizer, "moving averages of the weights", bytes);
    else
      ctx.memory(MemoryClass::optimizer, "moving averages of the weights", bytes);
    return {{}, update.on_host ? 0 : 3 * bytes / static_cast<double>(options_.update_every)};
  }

  void attach(UnitList& units) override {
    attached_ = true;
    for (const ParamPtr& param : units.all())
      if (options_.save_final && param->trainable && param->role == ParamRole::adapter)
        throw fail(ErrorCode::config, "strategy/ema averages the weights of models, and ", param->name,
                   " is an adapter's: what is merged into the final weights would not be its average. Leave one out, "
                   "or set save_final of ema to false");
    if (options_.save_final && services_.rank == 0)
      services_.log.info("strategy/ema: the final weights will be the moving averages of the trained ones");
  }

  void step_begin(StepContext&) override { in_step_ = true; }
  void step_end(StepContext&) override { in_step_ = false; }

  // Outside of a step the values are the initial ones, or those of a checkpoint.
  void after_update(Trainables& chunk, StepContext& ctx) override {
    for (const Trainable& t : chunk) {
      if (!t.param->trainable || t.value.numel() == 0) continue;
      Average& average = averages_[{t.param->name, t.layout.begin}];
      const bool fresh = !average.values.defined();
      if (fresh) average.values = t.value.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
      average.layout = t.layout, average.trained = t.value;
      if (in_step_ && !fresh) update(average.values, t.value, ctx.step());
    }
  }

  // A parameter's average stands where its values do while all ranks' parts are collected.
  at::Tensor merge(const Param& param, const at::Tensor& value, const WholeParam& whole) const override {
    if (!options_.save_final || !param.trainable || !attached_) return value;
    InPlaceOfValues places;
    for (auto at = averages_.lower_bound({param.name, 0}); at != averages_.end() && at->first.first == param.name; ++at)
      places.put(at->second.trained, at->second.values);
    return whole(param.name).clone();  // on one rank it may be the values themselves
  }

  void state(StateVisitor& visitor) override {
    for (auto& [key, average] : averages_) visitor.tensor(key.first + ".ema", average.values, average.layout);
  }

 private:
  struct Average {
    at::Tensor values, trained;  // `trained`: the memory of whoever owns the values
    Layout layout;
  };
  using Key = std::pair<std::string, int64_t>;  // a parameter may be updated in parts

  // Each product and sum is rounded once, so that bits do not depend on where parts are cut.
  void update(at::Tensor& average, const at::Tensor& value, int64_t step) const {
    if (step <= options_.update_after_step) {
      average.copy_(value);
    } else if (step % options_.update_every == 0) {
      average.mul_(options_.decay).add_(at::mul(value.to(at::kFloat), 1 - options_.decay));
    }
  }

  const Options options_;
  const Services& services_;
  bool in_step_ = false, attached_ = false;
  std::map<Key, Average> averages_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "ema", Ema)
