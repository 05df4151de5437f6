// GPipe (Huang et al. 2019, figure 2c): all micro-batches forward, then all of them backward. We differ: backward goes
// first in, first out, so that the first gradients leave the last stage as early as under the other schedules.
#include <drivetrain/toolkit/pipeline/pipeline.h>

namespace drivetrain {
namespace {

class Gpipe : public PipelineSchedule {
 public:
  using Options = PipelineOptions;
  static OptionTable options() { return pipeline_table<Options>(); }
  Gpipe(const Options& options, const Services&) : PipelineSchedule(options) {}

  std::optional<double> bubble(int64_t micro_batches) const override {
    return static_cast<double>(stages() - 1) / static_cast<double>(micro_batches);
  }

 protected:
  Program order(int64_t, int64_t micro_batches) const override {
    Program list;
    for (const Op op : {Op::forward, Op::backward})
      for (int64_t m = 0; m < micro_batches; ++m) list.push_back(instr(op, m));
    return list;
  }
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Schedule, "gpipe", drivetrain::Gpipe)
