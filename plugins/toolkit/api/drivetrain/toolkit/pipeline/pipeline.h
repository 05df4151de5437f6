// What schedules of several stages share: their options, the claim of the mesh axis, the cut of the model into pieces,
// and the whole program around an order of computations. A schedule then is one function:
//
//   class TwoAtATime : public PipelineSchedule {
//    public:
//     using Options = PipelineOptions;
//     static OptionTable options() { return pipeline_table<Options>(); }
//     TwoAtATime(const Options& options, const Services&) : PipelineSchedule(options) {}
//
//    protected:
//     Program order(int64_t stage, int64_t micro_batches) const override;  // forward, backward, ... as this stage does
//     them
//   };
//
// Loads, messages, slots, flush_grads and update are put in around it. With one stage there is one piece, and every
// such schedule is plain accumulation. Pure data out. Thread: const calls from any thread.
#pragma once

#include <optional>
#include <vector>

#include <drivetrain/plan_context.h>
#include <drivetrain/schedule.h>

namespace drivetrain {

struct PipelineOptions {
  int64_t stages = 1;
  std::vector<int64_t> cuts;  // the first unit of each piece but the first, in chain order; empty: by cost
};

// Error(config) unless `cuts` ascend from 1 and are one fewer than the pieces.
void check_pipeline_cuts(const PipelineOptions& options, int64_t chunks);

// `O` derives from PipelineOptions, or is it; more fields may follow.
template <class O>
TableBuilder<O> pipeline_table() {
  TableBuilder<O> builder;
  builder
      .field("stages", static_cast<int64_t O::*>(&PipelineOptions::stages),
             "parts of the model, one after another on as many ranks")
      .required()
      .range(1, 4096)
      .field("cuts", static_cast<std::vector<int64_t> O::*>(&PipelineOptions::cuts),
             "first unit of each part but the first, counted from 0 (the embedding); left out: by cost")
      .refused("partition", "parts are cut by cost, or as \"cuts\" says")
      .refused("activation_checkpoint_interval", "what is computed again is chosen in \"activation_checkpointing\"")
      .finish([](O& o) {
        int64_t chunks = 1;
        if constexpr (requires { o.chunks; }) chunks = o.stages > 1 ? o.chunks : 1;
        check_pipeline_cuts(o, chunks);
      });
  return builder;
}

class PipelineSchedule : public Schedule {
 public:
  ~PipelineSchedule() override;
  void plan(PlanContext& ctx) override;
  int64_t stages() const override { return stages_; }
  int64_t chunks() const override { return chunks_; }
  // The contiguous cut whose largest piece is smallest; of those, the most even one, the larger pieces last. With
  // several chunks it is bettered by simulation, so that a stage with a dear piece has cheap ones beside it. Every
  // piece has a unit at least. Error(config) if there are fewer units than pieces, or a given cut lies behind the last
  // unit.
  std::vector<int64_t> partition(const std::vector<double>& unit_costs) const override;
  // Error(config) for more micro-batches than an instruction can name.
  Program program(int64_t stage, int64_t micro_batches, Pass pass) const final;
  // As few as the training program needs: an activation lives from its receive or forward to its backward (of weights).
  int64_t slots(int64_t stage, int64_t micro_batches) const override;

  // Idle time over work where forward takes 1, backward 2, on equal stages; none where there is no formula.
  virtual std::optional<double> bubble(int64_t micro_batches) const;

 protected:
  explicit PipelineSchedule(const PipelineOptions& options, int64_t chunks = 1);

  // The computations of `stage` in order: every micro-batch and chunk forward once, and backward or backward_input and
  // backward_weight once. Asked for several stages and one micro-batch at least. A forward-only pass takes the forwards
  // of it.
  virtual Program order(int64_t stage, int64_t micro_batches) const = 0;

  static Instr instr(Op op, int64_t micro, int64_t chunk = 0);

 private:
  Program computations(int64_t stage, int64_t micro_batches, Pass pass) const;
  double bytes_sent(const RunFacts& run, double hidden) const;

  int64_t stages_, chunks_;
  std::vector<int64_t> cuts_;
};

}  // namespace drivetrain
