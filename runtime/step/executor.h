// Interprets a schedule's program on this rank's stage:
// loads micro-batches, runs its chunks of the model forward and backward, hands activations and gradients to the
// neighbouring stages, and keeps what backward needs. Main thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/model.h>
#include <drivetrain/recompute.h>
#include <drivetrain/schedule.h>
#include <drivetrain/toolkit/pipeline/schedule_graph.h>

#include "flight/record.h"
#include "internal.h"
#include "step/hooks.h"
#include "step/phase_clock.h"
#include "step/program.h"
#include "step/stage_links.h"
#include "step/unit_runner.h"

namespace drivetrain {

// What an executor uses of a run; all of it outlives the executor.
struct ExecutorParts {
  const Schedule& schedule;
  const Mesh& mesh;
  UnitList& units;                             // of this rank's stage, chunk after chunk
  const std::vector<ChunkUnits>& chunk_units;  // of each of its chunks
  const Strategies& strategies;                // outermost first
  const Recompute* recompute = nullptr;        // null: everything is kept
  at::Device device = at::Device(at::kCPU);
  int64_t micro_batches = 1;  // of a step
  std::string purpose = {};   // of executors beside the one that trains: its own name
  bool check = false;         // look at every call (span_check.h)
  const Strategy* storage_owner = nullptr;
  FlightRecord* flight = nullptr;  // null: none is kept
  // Ids of the plugins, for messages.
  std::string model_id = Model::kKind, schedule_id = Schedule::kKind, recompute_id = Recompute::kKind;
};

class DRIVETRAIN_INTERNAL Executor {
 public:
  using Load = std::function<Batch(int64_t micro)>;

  // `state` outlives it. `seed_gradient`: what the loss's backward starts with, until seed_with.
  // Collective over the stages. Error(plugin) for programs that do not make sense.
  Executor(const ExecutorParts& parts, StepState& state, double seed_gradient);

  // Runs that were recorded keep the one they were recorded with.
  void seed_with(double seed_gradient) { seed_gradient_ = seed_gradient; }

  // The program of a training step, of an evaluation.
  const Program& program(Pass pass) const { return programs_[pass == Pass::train ? 0 : 1]; }

  // Which step comes: for the state, and for the strategies of a training step.
  // Nothing of it is recorded with the program.
  void begin(Pass pass, int64_t step, Mode mode, bool replayed = false);
  // Runs the program; enqueues only.
  // Returns the sum of the losses over valid tokens, a float64 scalar on the device (0 without labels, and on all
  // stages but the last). Error(internal) for an instruction out of order.
  at::Tensor run(const Load& load);
  // The same, one loss per micro-batch; empty on all stages but the last. For forward-only runs with labels.
  Tensors run_each(const Load& load);

  void observe(PhaseClock* clock) { clock_ = clock; }

  // The last unit's output of a forward-only run without labels.
  const at::Tensor& logits() const { return logits_; }

 private:
  // One micro-batch in one chunk.
  struct Flight {
    std::vector<UnitFlight> units;
    Tensors received, made;            // what forward reads and hands on
    Tensors received_grad, made_grad;  // the same of backward
    Tensors inputs;                    // shapes and types of what forward read, on the meta device
    size_t outputs = 0;                // of the last unit
    bool summed = false;               // between ranks goes their sum
  };
  Flight& flight(const Instr& instr) { return flights_[{instr.micro, instr.chunk}]; }

  void check_programs() const;
  bool is_first_piece(int64_t chunk) const { return !graph_.sender({stage_, chunk}, Direction::forward); }
  bool is_last_piece(int64_t chunk) const { return !graph_.receiver({stage_, chunk}, Direction::forward); }
  const Unit* last_of_chain() const;
  void execute_all(const Load& load);
  void execute(const Instr& instr, const Load& load);
  void forward(const Instr& instr);
  void backward(const Instr& instr);
  void backward_weight(const Instr& instr);
  void done_with(const Instr& instr);

  const ExecutorParts parts_;
  const int64_t stage_;
  const ScheduleGraph graph_;
  StepState& state_;
  double seed_gradient_;
  Program programs_[2];
  Pass pass_ = Pass::train;  // that is under way
  const Program* program_ = nullptr;
  std::optional<StageLinks> links_;  // where there are several stages
  std::optional<SpanCheck> check_;
  UnitRunner runner_;
  std::map<std::pair<int64_t, int64_t>, Flight> flights_;  // by micro-batch and chunk
  std::map<int64_t, int64_t> uses_;                        // computations of this program that still read a micro-batch
  std::vector<std::pair<int64_t, at::Tensor>> losses_;     // of this run's micro-batches
  at::Tensor logits_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace drivetrain
