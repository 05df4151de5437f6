// Whole blocks run again from inputs that waited in the host's memory: what a device keeps of the forward pass does not
// grow with the number of blocks.
//
// Copies have a stream of their own (HostStash): to the host beside the forward passes that follow, back before the
// block runs. Thread: main; keep also autograd's.
#include <drivetrain/toolkit/recompute/recompute_blocks.h>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/not_recorded.h>

#include <optional>

namespace drivetrain {
namespace {

struct OffloadOptions {
  double fraction = 1;
  bool pin_memory = true;
};

class Offload : public Recompute {
 public:
  using Options = OffloadOptions;
  static OptionTable options() {
    return table<Options>()
        .field("fraction", &Options::fraction, "share of a rank's blocks that run again, counted from its first block")
        .range(0, 1)
        .field("pin_memory", &Options::pin_memory, "page-locked host memory: copies run beside the host");
  }
  Offload(const Options& options, const Services& services) : options_(options), blocks_(options.fraction) {
    if (!services.device.is_cpu()) host_.emplace(options.pin_memory);
  }

  void plan(PlanContext& ctx) override {
    if (host_)
      ctx.offer(concat(toolkit::kNotRecorded,
                       "\"type\": \"offload\" finds memory of the host while a step runs; use \"full\""));
    else
      ctx.capturable();
    if (!ctx.run().training) return;
    if (!host_)
      ctx.no_effect(
          "offload",
          "the run is on the CPU: inputs of blocks are in the host's memory already. Blocks run again as with "
          "\"type\": \"full\"");
    if (blocks_.plan(ctx) > 0) blocks_.report_cost(ctx, host_ ? &*host_ : nullptr);
  }

  void choose(const UnitList& units) override { blocks_.choose(units); }

  Keep keep(const Region& region) const override {
    return region.name.empty() && blocks_.has(region.unit) ? Keep::input : Keep::all;
  }

  std::unique_ptr<Held> hold(Tensors inputs) const override {
    return host_ ? host_->hold(inputs) : Recompute::hold(std::move(inputs));
  }
  bool leaves_inputs_on_device() const override { return !host_; }

 private:
  const Options options_;
  BlockChoice blocks_;
  std::optional<HostStash> host_;
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Recompute, "offload", drivetrain::Offload)
