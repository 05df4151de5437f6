// What a unit, layer or strategy can ask about the current step and visit. Owned by the runtime, valid during the call.
// Thread: main; autograd's thread while a unit's backward runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <drivetrain/param.h>
#include <drivetrain/random.h>

DRIVETRAIN_CONTRACT(step_context)

namespace drivetrain {

class Unit;

// What is kept of a region's activations from forward to backward. input: only the region's inputs. nothing: not even
// these; the region is recomputed from the nearest earlier input that is kept.
enum class Keep : uint8_t { all, input, nothing };

enum class Mode { train, evaluate, generate };

// One micro-batch of this rank, on the run's device; Dataset::read fills it on the CPU. [B, S]: rows and this rank's
// positions (in Dataset::read all of them).
struct Batch {
  at::Tensor tokens_BS;             // int64
  at::Tensor labels_BS;             // int64, already shifted; -100: not counted; undefined: logits are returned
  int64_t first_sample = 0;         // sample index of row 0, counted over the whole run
  int64_t valid_tokens = 0;         // number of labels that are not -100
  std::vector<RowRange> positions;  // the positions of the sequence that the columns are, in order; empty: all
  // Several documents in a row: where each one begins, and the end of the last, as b * (length of the whole sequence) +
  // the position in row b, also where this rank has only some of the positions. Strictly ascending from 0 to the end of
  // the last row, with the begin of every row. No position attends beyond its document. Empty: one document per row.
  std::vector<int64_t> cu_seqlens;
  // [B, S], int64: the positions that position embeddings use, 0 to the column's place in the whole sequence;
  // undefined: that place.
  at::Tensor position_ids_BS;
  // Of the rows as Dataset::read fills them: documents that begin in them, and columns that belong to no document.
  int64_t documents = 0, padding = 0;
};

enum class Direction { forward, backward };
enum class Part { whole, input, weight };  // of a backward: both halves, the inputs' half, the weights' half

// One unit, one micro-batch, one direction in this step's program.
struct Visit {
  int64_t unit = 0;  // index in the UnitList
  int64_t micro = 0;
  Direction direction = Direction::forward;
  Part part = Part::whole;
  // Whether it is the unit's first or last visit of that direction in this step. Inputs' halves are counted separately.
  bool first = false, last = false;
};

// All positions of the ranges, one after another: int64 [sum of counts] on `device`.
DRIVETRAIN_API at::Tensor position_ids(const std::vector<RowRange>& positions, const at::Device& device);

// Where `part` of the positions stands among `whole`: ranges of columns, in the order of `part`. Error(internal) if a
// position of `part` is not among them.
DRIVETRAIN_API std::vector<RowRange> columns_of(const std::vector<RowRange>& part, const std::vector<RowRange>& whole);

// What is wrong with Batch::cu_seqlens for `rows` whole sequences of `length` positions; empty if nothing.
DRIVETRAIN_API std::string cu_seqlens_problem(const std::vector<int64_t>& cu_seqlens, int64_t rows, int64_t length);

// Keys and values of earlier positions, while text is generated. Owned by the runtime, which sets how many positions of
// each row count after every pass over the model. Rows of the batch are rows of the cache. Thread: main.
class DRIVETRAIN_API KeyValueCache {
 public:
  virtual ~KeyValueCache();
  // How many positions each row of the batch has before its first column; as many numbers as rows.
  virtual const std::vector<int64_t>& past() const = 0;
  // Appends the k and v [B, S, G, C] of this pass to those of the layer `name`, row b behind past()[b] positions, and
  // returns all, views [B, T, G, C] of the cache's memory that hold until the next call for the layer; T is max(past) +
  // S, and of row b the first past()[b] + S positions count. Once per layer and pass.
  virtual std::pair<at::Tensor, at::Tensor> append(const std::string& name, const at::Tensor& k,
                                                   const at::Tensor& v) = 0;
};

class DRIVETRAIN_API StepContext {
 public:
  virtual ~StepContext();
  virtual int64_t step() const = 0;  // from 1
  virtual Mode mode() const = 0;
  // The micro-batch of the current visit, and the visit itself. Valid in units and in the hooks of a visit. In
  // step_begin visit() is the first visit of the step, and batch() is not valid.
  virtual const Batch& batch() const = 0;
  virtual const Visit& visit() const = 0;
  // The visits after the current one in this step, in the order of the program. In step_begin: all but the first.
  virtual std::span<const Visit> ahead() const = 0;
  // The key of random numbers for a tensor [samples, positions, ...] between layers. RandomKey::rows is
  // activation_positions(), or empty if the rank has all positions. `site`: a name that is unique in the model
  // ("block.3.dropout1"). Error(internal) in a training step that is recorded as a CUDA graph.
  virtual RandomKey random(std::string_view site) const = 0;
  // The positions of the sequence that the columns of batch() are, in their order. Attention and rotary embeddings use
  // them.
  virtual std::vector<RowRange> positions() const;
  // The positions of activations between layers: the same, or this rank's part of them under sequence parallelism.
  virtual std::vector<RowRange> activation_positions() const { return positions(); }
  // What the recompute policy keeps of a region of the current visit's unit; `all` if the run has no policy.
  virtual Keep keep(std::string_view region) const { return Keep::all; }
  // Adds a term to the loss (a router's balance, z-loss, distillation). `value`: one element, float32 or float64, that
  // the current unit's forward computed: the mean over the tokens of the micro-batch that activations between layers
  // have on this rank. It counts `weight` times, as the mean cross-entropy counts once: gradients have the run's loss
  // scale, and micro-batches and ranks are averaged by their valid tokens. The mean of `value` over the step stands in
  // metrics.jsonl as "loss_terms.<name>"; values of one name from several units are added up. The figure "loss" is the
  // cross-entropy alone. Call it in Unit::forward, outside of regions that are recomputed. It has no effect in other
  // steps than those of training, and is counted once if the unit is recomputed.
  // An AutogradUnit (toolkit/units/autograd_unit.h) computes the gradients. Another unit multiplies those that it
  // computes itself by what the call returns: the gradient of the step's loss by `value`, a float64 scalar on the
  // device; undefined in other steps. A value that is not finite ends the step as a loss that is not finite does, with
  // its name.
  virtual at::Tensor add_loss(const std::string& name, const at::Tensor& value, double weight) = 0;
  // Reports a figure for the monitors and metrics.jsonl under this name of at most 79 characters. `scalar`: one element
  // on any device, of which the runtime takes a copy. Only training steps count. A figure of a unit's pass is the mean
  // over all calls of the step, of every micro-batch and of every rank that reports it, whichever stage it has. What a
  // strategy's hook reports after flush_grads is rank 0's.
  // Error(plugin) for a tensor of several elements and for the runtime's own names ("loss", "lr", ...).
  virtual void metric(const std::string& name, const at::Tensor& scalar) = 0;
  // The cache of a generation: the batch then has the positions that are new, Batch::position_ids_BS says which they
  // are, and a unit that looks at other positions than by attention refuses it. Null: the batch has all positions.
  virtual KeyValueCache* cache() const { return nullptr; }
};

}  // namespace drivetrain
