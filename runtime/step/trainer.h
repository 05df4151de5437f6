// The training loop of one rank: one optimizer step after another, evaluation where it is due, events for the monitors.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>

#include "data/device_batches.h"
#include "data/feed.h"
#include "internal.h"
#include "memory/step_arena.h"
#include "step/capture.h"
#include "step/evaluator.h"
#include "step/executor.h"
#include "step/finish.h"

namespace drivetrain {

// What the training loop uses of a run; all that is not a copy outlives the trainer.
struct TrainerParts {
  ExecutorParts executor;
  FinishParts finish;
  FeedPlan feed;
  std::shared_ptr<Dataset> dataset;
  EvaluatorParts evaluator;
  std::vector<NamedEvaluation> evaluations;
  std::vector<Builder::SequenceCut> batch_cuts, activation_cuts;  // see Builder
  uint64_t seed = 0;
  bool capture = false;  // steps are recorded after the first few, and replayed
  double flops_per_token = 0;
  std::string flops_formula;
  // Every rank's own work in each step; empty: nobody asks. Main thread.
  std::function<void(const std::vector<WorkSeconds>&)> on_work = {};
};

// What a rank does between its steps beside training: saving checkpoints. Every call on every rank. Main thread.
class BetweenSteps {
 public:
  virtual ~BetweenSteps() = default;
  // Before the ranks exchange the figures of a step. `failed`: something of this rank, since the last call.
  virtual Beside beside() = 0;
  // Before the update of a step changes parameters and the optimizer's state, or where it is left out.
  virtual void before_update() = 0;
  // After a step: by which policies (a sum of powers of two; 0: none) a save is due. `figures`: those that are the same
  // on all ranks, by their names in metrics.jsonl. `last`: no step follows.
  virtual uint64_t due(const StepResult& result, const Value& figures, bool last) = 0;
  // Whether a save waits for other ranks before the next step: they have to agree beforehand that one is due. Else the
  // exchange of the next step tells who does not save. The same on all ranks.
  virtual bool waits_for_ranks() const = 0;
  // Names those of policies that `due` has given, for messages.
  virtual std::string policies_text(uint64_t policies) const = 0;
  // After a step, when all that belongs to it is done. `save`: what `due` said. May be collective. An exception ends
  // the run.
  virtual void after_step(const StepResult& result, const Value& figures, bool save, bool last) = 0;
};

class DRIVETRAIN_INTERNAL Trainer {
 public:
  // `publish` receives every step's object as metrics.jsonl has it (rank 0 hands it to the monitors); `stop` is polled
  // between steps: once set on any rank, all ranks end after the step they are in.
  using Publish = std::function<void(int64_t step, Value data)>;
  Trainer(const TrainerParts& parts, Publish publish, const std::atomic<int>& stop);
  ~Trainer();

  // The loop's own part of what a restart needs (run/run_state.h), between two steps: the next step; counters of
  // updates and the loss scale.
  void state(StateVisitor& visitor);
  void finish_state(StateVisitor& visitor) { finish_.state(visitor); }
  // The dataset's, as of the step before the next one: it is asked while nothing is read, or was after it had read that
  // step.
  void dataset_state(StateVisitor& visitor);

  // From the next step on; null ends it. Not owned.
  void observe(PhaseClock* clock);

  // Before train(). Not owned; outlives train().
  void between_steps(BetweenSteps* between) { between_ = between; }

  // The step that train() begins with.
  int64_t next_step() const { return feed_plan_.first_step; }
  // The signal by which train() was asked to stop; 0: it was not.
  int stop_signal() const { return stop_signal_; }

  // Runs to train_steps. Returns the last step done. Throws Error where a step fails.
  // What fails behind the update of the last one - hooks of its end, its evaluation, a monitor - is kept instead:
  // the trained weights are there.
  int64_t train();
  std::exception_ptr late_failure() const { return late_failure_; }  // the first such, or null

 private:
  StepResult train_step(int64_t step);
  StepResult agree(int64_t step);
  RankWord own_word() const;
  void check_saves(const StepResult& result) const;
  bool save_is_due(const StepResult& result, const Value& figures, bool last);
  void end_step(const StepResult& result, bool last, std::chrono::steady_clock::time_point start);
  Batch next_batch(DeviceBatches& places, int64_t micro);
  void take_all_batches();
  void compute_gradients();
  void now_doing(FlightDoing doing);             // into the flight record
  std::optional<double> evaluate(int64_t step);  // nothing: no label counts
  void say_no_label(const std::string& kind, const std::string& what);
  void evaluate_sets(int64_t step, Value& data);
  Value figures(const StepResult& result, double step_s) const;

  const TrainerParts parts_;
  Publish publish_;
  const std::atomic<int>& stop_;
  SaveWord save_word_;        // this rank's last one
  FeedPlan feed_plan_;        // its first step is always the next one
  std::optional<Feed> feed_;  // from the first step of train() on
  // Recorded steps read the places of the first, so an evaluation, whose batches may have another shape, has its own.
  DeviceBatches batches_, evaluation_batches_;
  StepArena arena_;
  StepState state_;
  Finish finish_;
  Executor executor_;
  std::deque<Evaluator> evaluators_;  // of the section `eval`, in its order
  // Where steps are recorded: gradients with their norm; the update. The host decides between the two.
  std::optional<RecordedPart> gradients_part_, update_part_;
  NamedSums named_;                 // of the step's units
  std::map<int64_t, Batch> taken_;  // of this step, where steps are recorded
  RowCounts rows_;                  // of this rank, since it was last cleared
  // Of the same micro-batches, the first whose labels do not count: where its rows come from.
  std::string origin_without_labels_;
  std::map<std::string, int64_t>
      without_labels_;  // how many so far: steps, evaluations, each set of the section `eval`
  std::exception_ptr late_failure_;
  int stop_signal_ = 0;
  PhaseClock* clock_ = nullptr;
  BetweenSteps* between_ = nullptr;
};

}  // namespace drivetrain
