// Base of pipeline schedules: the options, the claim of the mesh axis, the partition of the model into pieces, and the
// complete program for an order of computations. A schedule then is one function:
//
//   class TwoAtATime : public PipelineSchedule {
//    public:
//     using Options = PipelineOptions;
//     static OptionTable options() { return pipeline_table<Options>(); }
//     TwoAtATime(const Options& options, const Services&) : PipelineSchedule(options) {}
//
//    protected:
//     Program order(int64_t stage, int64_t micro_batches) const override;  // this stage's forward, backward, ...
//   };
//
// The base adds loads, sends, receives and slots. With one stage there is one piece, and every such schedule is
// gradient accumulation. Calls return data only. Thread: const calls from any thread.
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

// Throws Error(config) unless `cuts` is empty, or ascends from 1 or more and has one entry fewer than there are pieces.
void check_pipeline_cuts(const PipelineOptions& options, int64_t chunks);

// The option table. `O` is PipelineOptions or derives from it; the caller may append more fields.
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
  // The contiguous partition whose most expensive piece is cheapest; among those, the most even one, with the larger
  // pieces last. With several chunks a simulation improves it, so that a stage with an expensive piece has cheap other
  // pieces. Every piece has at least one unit. Error(config) if there are fewer units than pieces, or if an entry of
  // `cuts` is not a unit of the model.
  std::vector<int64_t> partition(const std::vector<double>& unit_costs) const override;
  // Error(config) if there are more micro-batches than an instruction can number.
  Program program(int64_t stage, int64_t micro_batches, Pass pass) const final;
  // The smallest number that the training program needs. An activation takes its slot from its receive (or forward) to
  // its backward (or backward_weight).
  int64_t slots(int64_t stage, int64_t micro_batches) const override;

  // The bubble: idle time divided by working time, for equal stages, if forward takes 1 and backward 2. No value: there
  // is no formula.
  virtual std::optional<double> bubble(int64_t micro_batches) const;

 protected:
  explicit PipelineSchedule(const PipelineOptions& options, int64_t chunks = 1);

  // The computations of `stage` in order: for every micro-batch and chunk one forward, and one backward or one
  // backward_input and one backward_weight. Called for two or more stages and one or more micro-batches only. The
  // program of a forward-only pass has the forwards of this order.
  virtual Program order(int64_t stage, int64_t micro_batches) const = 0;

  static Instr instr(Op op, int64_t micro, int64_t chunk = 0);

 private:
  Program computations(int64_t stage, int64_t micro_batches, Pass pass) const;
  double bytes_sent(const RunFacts& run, double hidden) const;

  int64_t stages_, chunks_;
  std::vector<int64_t> cuts_;
};

}  // namespace drivetrain
