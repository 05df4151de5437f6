// Shares the optimizer's state over all ranks: each updates a part of every parameter, and the new values are gathered.
//
// Source: Rajbhandari et al. 2020, "ZeRO", section 5.1. The base class has the flat buffers, the sums over ranks and
// the gathers; the hooks below say when. `options_` says what is shared: see ShardingOptions in state_sharing.h.
#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

namespace {

using namespace drivetrain;

class NewPlugin : public StateSharing {
 public:
  struct Options {
    int64_t bucket_size = 500'000'000;
    bool share_gradients = false;
  };
  static OptionTable options() {
    return table<Options>()
        .field("bucket_size", &Options::bucket_size, "elements that are summed or gathered at once")
        .at_least(1)
        .field("share_gradients", &Options::share_gradients,
               "each rank keeps the gradients of its part alone, which are summed after every micro-batch");
  }
  NewPlugin(const Options& options, const Services& services) : StateSharing(services), own_(options) {}

  // Claims the ranks, and says what every rank will hold and send.
  void plan(PlanContext& ctx) override {
    options_.bucket = own_.bucket_size;
    options_.shard_grads = own_.share_gradients;
    share_over_all(ctx);
    choose_sums(ctx, {}, own_.share_gradients ? 1 : 0);
    plan_gathers(ctx);
    plan_memory(ctx);
  }

  // A forward waits for the values that were gathered after the update.
  void before_forward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void after_forward(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void before_backward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void values_done(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  // Sums begin as soon as a unit's gradients are complete, and go on beside the backward of the units before it.
  void before_grads(const Visit& visit, StepContext&) override { grads().make_room(visit); }
  void after_backward(const Visit& visit, StepContext&) override { grads().begin_complete(visit); }
  // Collective: every rank has updated its part of these parameters.
  void after_update(Trainables& chunk, StepContext&) override { values().updated(chunk); }

 private:
  const Options own_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "new_plugin", NewPlugin)
