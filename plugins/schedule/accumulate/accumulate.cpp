// Gradient accumulation on a single stage: every micro-batch forward and backward, then flush and update.
#include <drivetrain/plan_context.h>
#include <drivetrain/schedule.h>

namespace drivetrain {
namespace {

class Accumulate : public Schedule {
 public:
  struct Options {};
  // What is asked of a schedule of several stages, or stands in a DeepSpeed file, lands here if the section has no
  // type.
  static OptionTable options() {
    const char* several =
        "several stages need a type: \"pipeline\": {\"type\": \"one_f_one_b\", \"params\": {\"stages\": N}}; for one "
        "stage leave it out";
    return table<Options>()
        .refused("stages", several)
        .refused("chunks", several)
        .refused("cuts", several)
        .refused("group_size", several)
        .refused("partition", "one stage is not cut; with several, parts are cut by cost. Leave it out")
        .refused("seed_layers", "values and dropout are the same for any number of stages. Leave it out")
        .refused("activation_checkpoint_interval",
                 "what is computed again is chosen in \"activation_checkpointing\". Leave it out");
  }
  Accumulate(const Options&, const Services&) {}

  void plan(PlanContext& ctx) override { ctx.capturable(); }

  int64_t stages() const override { return 1; }
  std::vector<int64_t> partition(const std::vector<double>&) const override { return {0}; }

  Program program(int64_t, int64_t micro_batches, Pass pass) const override {
    Program list;
    for (int64_t m = 0; m < micro_batches; ++m) {
      list.push_back(instr(Op::load, m));
      list.push_back(instr(Op::forward, m));
      if (pass == Pass::train) list.push_back(instr(Op::backward, m));
    }
    return list;
  }

  // A micro-batch is done before the next one begins.
  int64_t slots(int64_t, int64_t) const override { return 1; }

 private:
  static Instr instr(Op op, int64_t micro) {
    Instr i{op};
    i.micro = static_cast<int16_t>(micro);
    return i;
  }
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Schedule, "accumulate", drivetrain::Accumulate)
