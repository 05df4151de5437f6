// One set of the section `eval` on the ranks of a run: its rows go through the model forward, the loss of each comes
// back to every rank, and the plugin computes figures from them. Rows are counted in blocks, which are micro-batches:
// of one row where the evaluation wants every row's loss, else as large as those of the training. Ranks that read
// different data take turns with the blocks. A block's loss does not depend on who computes it, and losses are handed
// over in the order of the blocks, so that figures do not depend on the number of ranks. Main thread.
#pragma once

#include <string>
#include <vector>

#include "data/device_batches.h"
#include "internal.h"
#include "step/executor.h"
#include "step/named_evaluation.h"

namespace drivetrain {

// What an evaluation uses of a run; all that is not a copy outlives it.
struct EvaluatorParts {
  ExecutorParts executor;
  DeviceRuntime* runtime = nullptr;  // null on the CPU
  std::vector<Builder::SequenceCut> batch_cuts = {};
  std::vector<std::string> gradient_axes = {};  // of the mesh: ranks along them compute with different data
  int64_t micro_batch_size = 1;
  int64_t batch_rank = 0, batch_ranks = 1;  // this rank among those that read different rows
  int64_t vocab_size = 0;
  int64_t most_positions = 0;  // of a row
};

class DRIVETRAIN_INTERNAL Evaluator {
 public:
  // `set` is open. Collective over the stages: every set has links of its own, as its rows have a shape of their own.
  Evaluator(const EvaluatorParts& parts, NamedEvaluation set, StepState& state);

  const NamedEvaluation& set() const { return set_; }
  // The figures, under their own names. Collective over all ranks; waits for the device. Errors: of the data;
  // Error(numeric) if a loss is not finite.
  Value run(int64_t step);

 private:
  int64_t block_of(int64_t wave, int64_t micro) const;
  Batch load(int64_t block);
  Batch read(int64_t block);
  void check(const Batch& batch, int64_t rows) const;
  std::vector<RowScore> gather();

  const EvaluatorParts parts_;
  const NamedEvaluation set_;
  StepState& state_;
  Executor executor_;
  DeviceBatches batches_;
  const int64_t block_rows_, blocks_, waves_;
  const int64_t columns_;       // of a row: the set's S, made longer so that ranks can share it
  at::Tensor losses_;           // [blocks], float64, on the device: of those that this rank computed
  std::vector<double> tokens_;  // [blocks]: of those that this rank read
};

}  // namespace drivetrain
