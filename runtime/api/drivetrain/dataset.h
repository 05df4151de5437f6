// Where tokens come from. A pure function of step and row, so resuming is free and ranks are disjoint by construction.
//
// In each step the global batch is a list of train_batch_size rows; the runtime asks for the rows of its micro-batches:
// row = (accumulation index * data-parallel size + data-parallel rank) * micro-batch + i.
// Thread: `read` on one loader thread, after `open` on main.
#pragma once

#include <drivetrain/plan_context.h>
#include <drivetrain/plugin.h>
#include <drivetrain/state.h>
#include <drivetrain/step_context.h>

DRIVETRAIN_CONTRACT(dataset)

namespace drivetrain {

enum class DataPart { train, validation };

struct BatchRequest {
  DataPart part = DataPart::train;
  int64_t step = 1;       // from 1; for validation: index of the validation batch, from 1
  int64_t first_row = 0;  // within the global batch
  int64_t rows = 0;
};

struct DatasetFacts {
  int64_t seq_length = 0;  // S of every batch
  int64_t steps = -1;      // how many there are; -1: any number
  bool validation = false;
  Value notes;  // object for resolved.json and the log: files, bytes, hashes
};

class DRIVETRAIN_API Dataset : public Plugin {
 public:
  static constexpr const char* kKind = "dataset";
  ~Dataset() override;
  // Opens files and checks them against the run; called once, after `plan`.
  // Errors: io for unreadable data, config for data that do not fit the run.
  virtual DatasetFacts open(const RunFacts& run, const ModelFacts& model) = 0;
  // Fills tokens_BS and labels_BS [rows, S], int64, on the CPU. The runtime checks token ids against the vocabulary.
  virtual void read(const BatchRequest& request, Batch& batch) = 0;
  // For one that is no pure function of step and row. Main thread, before the first `read` and after the last one.
  virtual void state(StateVisitor&) {}
};

}  // namespace drivetrain
