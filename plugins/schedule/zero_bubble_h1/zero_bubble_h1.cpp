// Zero bubble, handcrafted schedule 1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2.2): one forward,
// one backward, with backward cut in two. The gradient of the input leaves at once; that of the weights follows `stage`
// micro-batches later, which fills the wait at the end and keeps as many activations on every stage as plain 1F1B keeps
// on its first. We differ: stage 0, which has nobody to send to, does both halves in one call.
#include <drivetrain/toolkit/pipeline/pipeline.h>

#include <algorithm>

namespace drivetrain {
namespace {

class ZeroBubbleH1 : public PipelineSchedule {
 public:
  using Options = PipelineOptions;
  static OptionTable options() { return pipeline_table<Options>(); }
  ZeroBubbleH1(const Options& options, const Services&) : PipelineSchedule(options) {}

  // What blocks keep between the halves beside their activations is in no plan (runtime/plan/README.md).
  void plan(PlanContext& ctx) override {
    PipelineSchedule::plan(ctx);
    if (stages() > 1 && ctx.run().training)
      ctx.cost(
          "behind the first stage gradients of layers' outputs, and what is recomputed, stay until weights' gradients "
          "are computed: more memory than is planned, about a quarter for each layer, and recompute saves none there");
  }

  // (p - 1)(forward + input - weight), where both halves of a backward take as long as a forward.
  std::optional<double> bubble(int64_t micro_batches) const override {
    if (micro_batches < stages()) return {};
    return static_cast<double>(stages() - 1) / static_cast<double>(3 * micro_batches);
  }

 protected:
  Program order(int64_t stage, int64_t micro_batches) const override {
    const int64_t ahead = std::min(stages() - 1 - stage, micro_batches);
    Program list;
    for (int64_t m = 0; m < ahead; ++m) list.push_back(instr(Op::forward, m));
    for (int64_t m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) list.push_back(instr(Op::forward, m + ahead));
      list.push_back(instr(stage == 0 ? Op::backward : Op::backward_input, m));
      if (stage > 0 && m >= stage) list.push_back(instr(Op::backward_weight, m - stage));
    }
    if (stage > 0)
      for (int64_t m = std::max<int64_t>(micro_batches - stage, 0); m < micro_batches; ++m)
        list.push_back(instr(Op::backward_weight, m));
    return list;
  }
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Schedule, "zero_bubble_h1", drivetrain::ZeroBubbleH1)
