// Gradient accumulation on a single stage: every micro-batch forward and backward, then flush and update.
#include <optional>
#include <string>

#include <drivetrain/plan_context.h>
#include <drivetrain/schedule.h>

namespace drivetrain {
namespace {

constexpr const char* kSeveral =
    "several stages need a type: \"pipeline\": {\"type\": \"one_f_one_b\", \"params\": {\"stages\": N}}; for one "
    "stage leave it out";

// What stands in a DeepSpeed file lands here if the section has no type. DeepSpeed never uses the first two.
struct Options {
  std::optional<std::string> partition;
  std::optional<bool> seed_layers, pipe_partitioned, grad_partitioned, use_reentrant;
  std::optional<int64_t> activation_checkpoint_interval;
};

void check(Options& o) {
  if (o.activation_checkpoint_interval.value_or(0) > 0)
    throw fail(ErrorCode::config, "activation_checkpoint_interval is ", *o.activation_checkpoint_interval,
               "; what is computed again is chosen in \"activation_checkpointing\". Leave it out");
}

class Accumulate : public Schedule {
 public:
  using Options = drivetrain::Options;
  static OptionTable options() {
    return table<Options>()
        .field("partition", &Options::partition, "without effect: one stage is not cut")
        .field("seed_layers", &Options::seed_layers,
               "without effect: values and dropout are the same for any number of stages")
        .field("activation_checkpoint_interval", &Options::activation_checkpoint_interval,
               "only 0: see activation_checkpointing")
        .at_least(0)
        .field("pipe_partitioned", &Options::pipe_partitioned, "without effect: one stage sends nothing")
        .field("grad_partitioned", &Options::grad_partitioned, "without effect: one stage sends nothing")
        .field("use_reentrant", &Options::use_reentrant, "without effect: a word of PyTorch's checkpointing")
        .refused("stages", kSeveral)
        .refused("chunks", kSeveral)
        .refused("cuts", kSeveral)
        .refused("group_size", kSeveral)
        .finish(check);
  }
  Accumulate(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext& ctx) override {
    ctx.capturable();
    const auto idle = [&](bool given, const char* key, const char* why) {
      if (given) ctx.no_effect(concat("pipeline.", key), why);
    };
    idle(options_.partition.has_value(), "partition", "one stage is not cut; with several, parts are cut by cost");
    idle(options_.seed_layers.has_value(), "seed_layers", "values and dropout are the same for any number of stages");
    idle(options_.pipe_partitioned.has_value(), "pipe_partitioned", "one stage sends nothing");
    idle(options_.grad_partitioned.has_value(), "grad_partitioned", "one stage sends nothing");
    idle(options_.use_reentrant.has_value(), "use_reentrant", "a block that runs again has no such choice");
  }

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

  const Options options_;
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Schedule, "accumulate", drivetrain::Accumulate)
