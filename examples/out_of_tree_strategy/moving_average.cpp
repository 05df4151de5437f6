// A moving average of the weights, kept beside the optimizer's values. See README.md.
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <string>
#include <utility>

namespace {

using namespace drivetrain;

class MovingAverage : public Strategy {
 public:
  struct Options {
    double decay = 0.999;
  };
  static OptionTable options() {
    return table<Options>().field("decay", &Options::decay, "how much of the average stays in an update").range(0, 1);
  }
  MovingAverage(const Options& options, const Services&) : decay_(options.decay) {}

  void plan(PlanContext& ctx) override {
    const RunFacts& run = ctx.run();
    if (!run.training || !run.rank_share.known()) return;
    const double elements = run.rank_share * static_cast<double>(ctx.model().parameters);
    ctx.memory(MemoryClass::optimizer, "moving average of the weights, if nothing is sharded", 4 * elements);
  }

  void step_begin(StepContext&) override { training_ = true; }

  // Called after every update, and before the first step with the initial values or those of a checkpoint.
  void after_update(Trainables& chunk, StepContext&) override {
    for (const Trainable& t : chunk) {
      Average& average = averages_[{t.param->name, t.layout.begin}];
      if (!average.values.defined()) average = {t.value.clone(), t.layout};
      if (training_) average.values.mul_(decay_).add_(t.value, 1 - decay_);
      average.now = t.value;
    }
  }

  // A figure of the run: the runtime reads it after the step, so nothing waits for a device.
  void step_end(StepContext& ctx) override {
    at::Tensor sum;
    for (const auto& [key, average] : averages_) {
      const at::Tensor part = (average.now - average.values).square().sum().to(at::kDouble);
      sum = sum.defined() ? sum + part : part;
    }
    if (sum.defined()) ctx.metric("average_distance", sum.sqrt());
  }

  // Names do not depend on the mesh; the layout says which part this rank has.
  void state(StateVisitor& visitor) override {
    for (auto& [key, average] : averages_) visitor.tensor(key.first + ".average", average.values, average.layout);
  }

 private:
  struct Average {
    at::Tensor values;
    Layout layout;
    at::Tensor now = {};  // the weights, in the data-parallel strategy's memory
  };
  using Key = std::pair<std::string, int64_t>;  // a parameter may be updated in parts

  const double decay_;
  bool training_ = false;
  std::map<Key, Average> averages_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "moving_average", MovingAverage)
