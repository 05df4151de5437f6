// A pipeline schedule: all micro-batches forward, then all of them backward, the last one first.
//
// Source: Huang et al. 2019, "GPipe", figure 2c. The base class claims the axis of the stages, cuts the model, and adds
// loads, sends, receives and slots; a schedule says in which order a stage computes.
#include <drivetrain/toolkit/pipeline/pipeline.h>

namespace {

using namespace drivetrain;

class NewPlugin : public PipelineSchedule {
 public:
  struct Options : PipelineOptions {
    std::string backward = "last_first";
  };
  static OptionTable options() {
    return pipeline_table<Options>()
        .field("backward", &Options::backward, "which micro-batch goes backward first")
        .one_of({"last_first", "first_first"});
  }
  NewPlugin(const Options& options, const Services&)
      : PipelineSchedule(options), last_first_(options.backward == "last_first") {}

 protected:
  // Called for two or more stages. Every micro-batch once forward and once backward.
  Program order(int64_t, int64_t micro_batches) const override {
    Program list;
    for (int64_t m = 0; m < micro_batches; ++m) list.push_back(instr(Op::forward, m));
    for (int64_t m = 0; m < micro_batches; ++m)
      list.push_back(instr(Op::backward, last_first_ ? micro_batches - 1 - m : m));
    return list;
  }

 private:
  const bool last_first_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Schedule, "new_plugin", NewPlugin)
