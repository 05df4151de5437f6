// The end of a step: gradients final, counts and norm agreed by all ranks, one scale, one update.
// In between stands the step's only wait for the device;
// what comes before and after it only enqueues work, which may be recorded and replayed.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/communicator.h>
#include <drivetrain/log.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/mesh.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/precision.h>

#include "internal.h"
#include "step/figures.h"
#include "step/grad_sums.h"
#include "step/hooks.h"
#include "step/loss_scaler.h"
#include "step/loss_terms.h"
#include "step/norm.h"
#include "step/optimizer_guard.h"
#include "step/phase_clock.h"
#include "step/update_scalars.h"

namespace drivetrain {

// The last step after which a rank found a save due, and by which of its policies: a sum of powers of two. 0: none yet.
struct SaveWord {
  int64_t step = 0;
  uint64_t policies = 0;
  bool operator==(const SaveWord&) const = default;
};

// One step's figures, reduced over all ranks.
struct StepResult {
  int64_t step = 0;
  double loss = 0;  // mean over the valid tokens of the global batch; means nothing where there are none
  // As loss, of the terms that units added; not part of it. Those of one name in several units are added up.
  std::map<std::string, double> loss_terms;
  std::map<std::string, double> means;  // of what units reported (StepContext::metric), over calls and ranks
  double grad_norm = 0;                 // before clipping
  double lr = 0;                        // of group 0, used in this step
  int64_t tokens = 0;                   // valid ones
  int64_t documents = 0;                // that begin in the global batch
  int64_t padding = 0;                  // columns of the global batch without a document
  double peak_memory_bytes = 0;         // largest over ranks: of the device the run is on
  // what the allocator took; of the process, on a device only
  double peak_reserved_bytes = 0, host_peak_memory_bytes = 0;
  bool stop = false;                 // some rank was asked to stop
  int signal = 0;                    // by this signal; 0: none
  Beside beside = Beside::nothing;   // the last of any rank
  double seconds = 0;                // since the start, by rank 0's clock
  std::optional<double> loss_scale;  // that the gradients were made with; nothing: no such thing in this run
  // the update is left out, its gradients being not finite or no label counting; nothing: gradients that are not finite
  // end the run
  std::optional<bool> skipped;
  std::vector<WorkSeconds> work;  // of every rank, its own in this step
  std::vector<SaveWord> saves;    // of every rank, as it said it
};

// What a rank tells all others at the end of a step, besides its figures.
struct RankWord {
  int signal = 0;  // by which it was asked to stop; 0: it was not
  Beside beside = Beside::nothing;
  WorkSeconds work = {};
  SaveWord save = {};
};

// What the end of a step uses of a run; all of it outlives Finish.
struct FinishParts {
  std::vector<Trainables>& chunks;            // what this rank updates, as the optimizer is called
  const std::vector<ParamPtr>& model_params;  // of the whole model, the same list on every rank
  const Mesh& mesh;
  const Strategies& strategies;  // outermost first
  Optimizer& optimizer;
  const LrSchedule& lr_schedule;
  Log& log;
  const Precision* precision = nullptr;  // null: float32 throughout
  at::Device device = at::Device(at::kCPU);
  DeviceRuntime* runtime = nullptr;  // null on the CPU
  at::ScalarType param_dtype = at::kFloat;
  std::vector<std::string> gradient_axes = {};  // of the mesh, over which gradients are summed
  // Of parameters that several stages compute with: which stages, ascending.
  std::map<std::string, std::vector<int64_t>> tied_stages = {};
  int64_t train_batch_size = 1, seq_length = 1;
  int64_t batch_ranks = 1;  // that read different rows
  int64_t train_steps = 1;
  double gradient_clipping = 0;  // 0: off
  ParamGroups param_groups = {};
  // Ids of the plugins, for messages.
  std::string optimizer_id = Optimizer::kKind, lr_schedule_id = LrSchedule::kKind, precision_id = Precision::kKind,
              communicator_id = Communicator::kKind;
};

class DRIVETRAIN_INTERNAL Finish {
 public:
  explicit Finish(const FinishParts& parts);
  // The optimizer's groups and state, before the first step.
  void start() { optimizer_.start(parts_.chunks); }

  // What the loss's backward starts with in the coming step: near 1 / tokens of a full global batch;
  // with a loss scale, near scale / tokens of one rank's share of that batch.
  // Throws Error(config) if the parameters' type rounds it to 0.
  double seed_gradient() const;
  bool scales_loss() const { return scaler_.has_value(); }

  // flush_grads and the sums that belong to no strategy,
  // then `loss` (Executor::run's) and the sum of squares to where agree() reads them. Enqueues only.
  void sum_gradients(const at::Tensor& loss, StepContext& ctx);

  // Loss, norm and `rows`, summed over all ranks; of `word`, all ranks learn what any has said;
  // scalars for update(), and the loss scale of the step after this one. Collective; waits for the device. If the
  // result is `skipped`, update() is not to be called.
  // `named`: this rank's (LossTerms::sums, StepState::metrics).
  // Throws Error(numeric) if the loss or a term is not finite, or the norm where no update is left out for it,
  // or none could help: the loss scale is at its minimum, or it was so in too many steps in a row.
  // Nothing was updated then. A step in which no token counts adds nothing: it is `skipped`.
  StepResult agree(int64_t step, const RowCounts& rows, const RankWord& word, const NamedSums& named = {});

  // The optimizer and after_update, chunk by chunk. Enqueues only.
  void update(StepContext& ctx);
  // The host's part of an update, whether it ran, was replayed or left out.
  void updated();

  // After the last step: throws Error(numeric) if every update was left out, so that nothing was trained; Error(io) if
  // that is for want of labels.
  void check_trained(const StepResult& last) const;

  // The ranks' words alone, where no step follows that would bring them: `saves` of the result, and the same check of
  // rates as in agree(). Collective; waits for the device.
  StepResult agree_on_words(const RankWord& word) { return exchange({}, word); }

  // Loss and tokens of an evaluation, from this rank's sums. Collective; waits for the device.
  StepResult agree_on_loss(const at::Tensor& loss, const RowCounts& rows);

  // Updates, tokens and skipped updates so far, and the loss scale.
  void state(StateVisitor& visitor);

  void observe(PhaseClock* clock) { clock_ = clock; }

 private:
  StepResult exchange(const RowCounts& rows, const RankWord& word, const NamedSums& named = {});
  void share_named(const NamedSums& mine, const SharedFigures& shared, StepResult& result);
  void check_rates(const std::vector<RankFigures>& ranks) const;
  bool skips(const StepResult& result);
  void pass_over(StepResult& result);
  Error not_finite(const StepResult& result, const std::string& what, const std::string& advice) const;
  void adapt_scale(const StepResult& result);
  void fill_hyper(StepResult& result);
  const UpdateArgs& scalars_for(const Trainables& chunk) const;

  const FinishParts parts_;
  OptimizerGuard optimizer_;
  Figures figures_;
  SumsOverRanks named_sums_;
  GradSums sums_;
  GradNorm norm_;
  UpdateScalars scalars_;
  std::optional<LossScaler> scaler_;
  double plain_seed_;  // without the loss scale
  bool may_skip_;
  int64_t updates_ = 0, skipped_in_a_row_ = 0;
  double squares_ = 0;         // of the last exchange
  double lr_ = 0, hyper_ = 0;  // of the last update: RankFigures
  int64_t tokens_seen_ = 0;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  PhaseClock* clock_ = nullptr;
};

}  // namespace drivetrain
