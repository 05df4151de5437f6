// Where checkpoints are kept and in which form. The runtime takes a snapshot of a run's state and knows which rank
// writes what; a store writes it, makes it visible in one moment, and reads any part of it back.
//
// A save in order: on every rank one `write`, on a thread of its own if the store is asynchronous; when all ranks have
// returned, one `commit` on rank 0. If a `write` failed on any rank, `discard` on rank 0 instead. A store does not
// communicate: the runtime passes what `write` returned from every rank to `commit`. All ranks see the same files.
// Errors: Error(io) for the disk, Error(checkpoint) for what was written and does not fit or is damaged.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(checkpoint_store)

namespace drivetrain {

// A rectangle of a tensor's elements. The tensor is seen as a matrix: dimension 0 are rows, all others together are
// columns; a tensor with one dimension has one column, a scalar is one element.
struct StateBox {
  int64_t row = 0, column = 0;    // of the first element
  int64_t rows = 0, columns = 0;  // how many
  bool operator==(const StateBox&) const = default;
};

// A part of a named tensor of the run's state, copied for a save.
struct StateSlice {
  std::string name;            // of the tensor; UTF-8, no control characters, at most 4096 bytes
  std::vector<int64_t> shape;  // of the whole tensor, without padding
  StateBox box;                // which part of it `data` is
  at::Tensor data;             // [box.rows, box.columns], contiguous, on the CPU, any dtype
};

// What one rank writes in one save. Every element of every tensor is in exactly one slice of exactly one rank.
struct Snapshot {
  std::string tag;  // "step-00000040"; at most 200 letters, digits, "-", "_" and ".", not "." first
  int64_t step = 0;
  int64_t rank = 0, world_size = 1;
  std::vector<StateSlice> slices;  // may be empty; no two have the name, row and column of their box in common
};

// A tensor that a checkpoint holds.
struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

// A complete checkpoint that is open for reading. Owned by the caller; it stays readable if the tag is removed or
// replaced meanwhile, and after the store that opened it is gone. Thread: const calls from any thread.
class DRIVETRAIN_API Checkpoint {
 public:
  virtual ~Checkpoint();
  virtual const Value& facts() const = 0;                 // as given to commit
  virtual std::vector<StoredTensor> tensors() const = 0;  // sorted by name
  // Writes the elements of `box` into `into` [box.rows, box.columns], on the CPU, of any strides and floating or
  // integral dtype; converts if the dtypes differ. Reads no more than the chunks that hold these elements, and
  // returns after all their digests were checked; after an error `into` holds anything.
  // Error(checkpoint) naming file, tensor and byte range if a digest differs, if part of the box is in no file, or if a
  // file is missing, truncated or of another save.
  virtual void read(const std::string& name, const StateBox& box, const at::Tensor& into) const = 0;
  // Checks every byte of every file. Returns one line per problem, naming the file, the range of its bytes and the
  // tensors in it as far as they are known; empty: the checkpoint is whole.
  virtual std::vector<std::string> verify() const = 0;
};

// A complete tag of a store.
struct StoredTag {
  std::string tag;
  int64_t step = 0;
  double saved_at = 0;  // seconds since 1970, UTC
  uint64_t bytes = 0;   // of all its files
  uint64_t files = 0;   // how many
  Value figures;        // the member "figures" of the facts: the step's figures by their names in metrics.jsonl
  std::string run_id;   // the member "run_id" of the facts: which run saved it, also after it went on; empty: unknown
};

// What a user should know of a store's place beside its complete tags.
struct StoreProblem {
  std::string tag;         // that it is about
  std::string text;        // one line: the file or folder, and what is wrong with it
  bool left_over = false;  // of a save or a removal that did not end, or a copy under another name: no damage
};

class DRIVETRAIN_API CheckpointStore : public Plugin {
 public:
  static constexpr const char* kKind = "checkpoint_store";
  ~CheckpointStore() override;

  // Whether `write` and `commit` may run on a thread of the runtime's while training goes on. The same on all ranks.
  virtual bool asynchronous() const { return false; }
  // Whether a save that failed ends the run, with the save's error, or is reported and training goes on.
  virtual bool failure_ends_run() const { return true; }

  // Called once, before every other call, on every rank. `output_dir`: the run's folder, absolute; it need not exist
  // yet. `owner`: whether this rank may remove what a killed save left behind; no rank writes before its call has
  // returned. Creates nothing. Error(config) if the place cannot be used. Thread: main.
  virtual void open_place(const std::string& output_dir, bool owner) = 0;
  // The complete tags, newest first: by step, then by time. A tag without its last file, or under a temporary name, is
  // not complete. Thread: main.
  virtual std::vector<StoredTag> tags() const = 0;
  // Error(checkpoint) if the tag is not there or its description is damaged or of a newer version. Thread: main.
  virtual std::shared_ptr<const Checkpoint> open(const std::string& tag) const = 0;

  // Called once per save on every rank. On return all bytes of this rank are on the disk (fsync), under names that
  // `tags` does not list. Returns what `commit` needs of this rank, at most 1 MB of JSON. Frees each slice's data as
  // soon as it is written, so that memory falls during the call. Thread: main, or the save's thread.
  virtual Value write(Snapshot& snapshot) = 0;
  // Called on rank 0 after every rank's `write` has returned. `parts`: what they returned, by rank. `facts`: what
  // Checkpoint::facts gives back; an object. On return the tag is complete and survives a power cut. If a complete tag
  // of that name is there, it is replaced; at no moment is there neither. Thread: as `write`.
  virtual void commit(const std::string& tag, int64_t step, const Value& facts, const std::vector<Value>& parts) = 0;
  // Called on rank 0 after a `write` or `commit` failed, when no rank writes any more. Removes what the save left.
  // Thread: as `write`.
  virtual void discard(const std::string& tag) noexcept = 0;
  // Called on rank 0. Removes a complete tag; a crash in the middle leaves no part of it that `tags` lists. Thread: as
  // `write`.
  virtual void remove(const std::string& tag) = 0;

  // For tools, which only read. What `tags` leaves out and what can be seen of damage without reading whole files:
  // damaged and incomplete tags, and what unfinished saves have left. Changes nothing. Thread: main.
  virtual std::vector<StoreProblem> problems() const { return {}; }
  // For tools, instead of `open_place`: `folder`, absolute, is where the tags themselves lie, whatever the options say.
  // Returns whether it holds a tag, complete or not; false also where a store has no such folder. Thread: main.
  virtual bool open_tags(const std::string& /* folder */) { return false; }
};

}  // namespace drivetrain
