// Distributed data parallelism: every rank holds the whole model and sees other rows; gradients are summed over the
// ranks.
//
// Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2. We
// differ: a bucket is a unit of the model (its flat gradient buffer), so no bucket map is needed, and the sum is not
// divided: the runtime scales once, by the number of tokens.
#include <drivetrain/toolkit/sharding/grad_sums.h>

namespace {

using namespace drivetrain;

class Ddp : public StateSharing {
 public:
  struct Options {
    std::optional<int64_t> reduce_every;
  };
  static OptionTable options() {
    return table<Options>()
        .field("reduce_every", &Options::reduce_every,
               "micro-batches added up before their gradients are summed over ranks; 0: all of a step; null: the top "
               "level's, else 0")
        .at_least(0);
  }

  Ddp(const Options& options, const Services& services) : StateSharing(services), reduce_every_(options.reduce_every) {}

  void plan(PlanContext& ctx) override {
    share_nothing(ctx);
    choose_sums(ctx, reduce_every_, 0);
    plan_memory(ctx);
    plan_recording(ctx);
  }

  // Values are whole everywhere, so there is nothing to gather. A unit's gradients are summed over all ranks as soon as
  // they are complete, while the backward of the units before it goes on.
  void before_grads(const Visit& visit, StepContext&) override { grads().make_room(visit); }
  void after_backward(const Visit& visit, StepContext&) override { grads().begin_complete(visit); }

 private:
  const std::optional<int64_t> reduce_every_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "ddp", Ddp)
