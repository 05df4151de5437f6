// A way of sharing a model's state out in which one mistake can be asked for: right, but for the option "mistake". Each
// mistake shows under one value of one setting only.
#include <drivetrain/services.h>
#include <drivetrain/toolkit/sharding/grad_sums.h>
#include <drivetrain/toolkit/sharding/value_gathers.h>

namespace {

using namespace drivetrain;

class Mistaken : public StateSharing {
 public:
  struct Options {
    std::string mistake = "none";
    int64_t stage = 1, group_size = 0;
    bool gather_late = false;
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "sums_too_late", "remainder_dropped", "across_groups_first", "gather_left_out",
                 "third_part_dropped"})
        .field("stage", &Options::stage, "as ZeRO's")
        .field("group_size", &Options::group_size, "ranks that share a copy; 0: all")
        .field("gather_late", &Options::gather_late, "as on a device: new values are gathered by the next pass");
  }

  Mistaken(const Options& options, const Services& services) : StateSharing(services), section_(options) {}

  void plan(PlanContext& ctx) override {
    options_.shard_grads = section_.stage >= 2, options_.shard_values = section_.stage == 3;
    options_.bucket = 3000, options_.gather_late = section_.gather_late;
    if (section_.group_size > 0)
      share_over_groups(ctx, "group_size", section_.group_size);
    else
      share_over_all(ctx);
    choose_sums(ctx, {}, 1);
    if (has("sums_too_late") && options_.reduce_every == 2) options_.reduce_every = 0;
    // The right sums over ranks, with brackets elsewhere.
    if (has("across_groups_first")) std::swap(options_.shard_axes, options_.replica_axes);
    plan_memory(ctx);
    plan_recording(ctx);
  }

  void attach(UnitList& units) override {
    StateSharing::attach(units);
    last_ = units.units.back()->params().back();
  }
  void before_forward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void before_backward(const Visit& visit, StepContext& ctx) override { values().use(visit, ctx); }
  void after_forward(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void values_done(const Visit& visit, StepContext& ctx) override { values().done(visit, ctx); }
  void before_grads(const Visit& visit, StepContext&) override { grads().make_room(visit); }
  void after_backward(const Visit& visit, StepContext&) override {
    const int64_t every = options_.reduce_every;
    const bool of_fewer = visit.last && every > 0 && options_.micro_batches % every != 0;
    if (!has("remainder_dropped") || !of_fewer) grads().begin_complete(visit);
  }
  void flush_grads(StepContext& ctx) override {
    StateSharing::flush_grads(ctx);
    if (!has("third_part_dropped") || shard_ranks() != 3 || services_.rank != 2) return;
    for (const Trainables& list : trainables())
      for (const Trainable& t : list) t.grad.zero_();
  }
  void after_update(Trainables& chunk, StepContext&) override {
    // Ranks that have values in common need no gather.
    const bool filled = std::exchange(filled_, filled_ || chunk.front().param == last_);
    if (!has("gather_left_out") || !filled || chunk.front().param != last_) values().updated(chunk);
  }

 private:
  bool has(const char* mistake) const { return section_.mistake == mistake; }

  const Options section_;
  ParamPtr last_;
  bool filled_ = false;  // the first values of the last parameter
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "mistaken", Mistaken)
