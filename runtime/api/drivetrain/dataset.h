// A dataset gives the tokens and labels of every step. It should be a pure function of step and row: then a resumed run
// needs no state, and ranks read different rows by construction.
//
// In each step the global batch is a list of train_batch_size rows. A rank reads the rows of its micro-batches:
// row = (accumulation index * data-parallel size + data-parallel rank) * micro-batch + i.
// Thread: `open` and `state` on main; `read` on one loader thread, which runs up to two steps ahead of the training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  int64_t steps = -1;      // number of training steps it has data for; -1: any number
  bool validation = false;
  bool documents = false;  // a batch may have several documents in a row (Batch::cu_seqlens)
  // Of texts: the tokens that begin each of them, and those of which each ends what a model is taught to say.
  // `generate` begins and ends by them. No value of `begin_tokens`: nobody knows; an empty list: none begin a text.
  std::optional<std::vector<int32_t>> begin_tokens = std::nullopt;
  std::vector<int32_t> end_tokens = {};
  // An object (files, bytes, hashes) for resolved.json and the log. It is compared between ranks and when a run goes
  // on; between ranks without the members whose names end in "_mtime_ns": hosts may have copies of a file.
  Value notes;
};

// The documents of a part of the data, for a dataset that arranges those of another one into rows. Position i of a
// document is its token i, with the label that is wanted there: token i + 1, or -100. So a document of n + 1 tokens
// has n positions. Does not change once it was returned. Thread: any.
class DRIVETRAIN_API Documents {
 public:
  virtual ~Documents();
  virtual int64_t count() const = 0;
  virtual int64_t length(int64_t document) const = 0;  // positions; at least 1
  // Writes positions [first, first + count) of a document. Error(io) for unreadable data.
  virtual void read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const = 0;
};

class DRIVETRAIN_API Dataset : public Plugin {
 public:
  static constexpr const char* kKind = "dataset";
  ~Dataset() override;
  // Called once, in training only, between two rounds of `plan` (plugin.h): the batch sizes of `run` are known, its
  // seq_length is not. Opens the files and checks them against the run. Throws Error(io) for unreadable data,
  // Error(config) for data that do not fit the run.
  virtual DatasetFacts open(const RunFacts& run, const ModelFacts& model) = 0;
  // Called once per micro-batch, in the order of the steps; the validation batches follow the step that evaluates.
  // Sets tokens_BS and labels_BS: [rows, S], int64, contiguous, on the CPU. The tensors are the runtime's from then on.
  // With DatasetFacts::documents it may set cu_seqlens, position_ids_BS, documents and padding.
  // The runtime checks shapes, boundaries, and ids against the vocabulary. May throw Error(io).
  virtual void read(const BatchRequest& request, Batch& batch) = 0;
  // For a dataset that is not a pure function of step and row (state.h). Called to save after the last `read` of every
  // step, on the thread that reads; called to load before the first `read`, on the main thread. No `read` runs then.
  virtual void state(StateVisitor&) {}
  // For other datasets: what `read` makes rows of, as single documents. Null if there are none, or none in this part.
  // Owned by this dataset. Called after `open`, on the main thread.
  virtual const Documents* documents(DataPart /* part */) const { return nullptr; }
};

}  // namespace drivetrain
