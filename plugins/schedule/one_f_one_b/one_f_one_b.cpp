// One forward, one backward (Narayanan et al. 2019, "PipeDream"; with a flush: Narayanan et al. 2021, "Efficient
// Large-Scale Language Model Training", figure 3): a stage starts backward as soon as it can, and keeps no more
// micro-batches than stages lie behind it.
#include <drivetrain/toolkit/pipeline/pipeline.h>

#include <algorithm>

namespace drivetrain {
namespace {

class OneFOneB : public PipelineSchedule {
 public:
  using Options = PipelineOptions;
  static OptionTable options() { return pipeline_table<Options>(); }
  OneFOneB(const Options& options, const Services&) : PipelineSchedule(options) {}

  std::optional<double> bubble(int64_t micro_batches) const override {
    return static_cast<double>(stages() - 1) / static_cast<double>(micro_batches);
  }

 protected:
  Program order(int64_t stage, int64_t micro_batches) const override {
    const int64_t ahead =
        std::min(stages() - 1 - stage, micro_batches);  // forwards that run before the first backward's own
    Program list;
    for (int64_t m = 0; m < ahead; ++m) list.push_back(instr(Op::forward, m));
    for (int64_t m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) list.push_back(instr(Op::forward, m + ahead));
      list.push_back(instr(Op::backward, m));
    }
    return list;
  }
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Schedule, "one_f_one_b", drivetrain::OneFOneB)
