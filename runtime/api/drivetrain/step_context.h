// What a unit, layer or strategy may ask about the step it is in. Owned by the runtime, valid during the call.
// Thread: main (units), autograd's thread inside a backward span.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>

#include <drivetrain/param.h>
#include <drivetrain/random.h>

DRIVETRAIN_CONTRACT(step_context)

namespace drivetrain {

class Unit;

// What is kept of a region's activations between forward and backward.
enum class Keep : uint8_t { all, input, nothing };  // nothing: computed again from the nearest earlier kept input

enum class Mode { train, evaluate, generate };

// Rows of one micro-batch on this rank.
struct Batch {
  at::Tensor tokens_BS;             // int64
  at::Tensor labels_BS;             // int64, already shifted, -100: does not count; undefined: the head returns logits
  int64_t first_sample = 0;         // global sample index of row 0, counted over the whole run
  int64_t valid_tokens = 0;         // labels that count
  std::vector<RowRange> positions;  // of the whole sequence that the columns are, in their order; empty: all of it
};

enum class Direction { forward, backward };
enum class Part { whole, input, weight };  // of a split backward

// One unit, one micro-batch, one direction in this step's program.
struct Visit {
  int64_t unit = 0;  // index in the UnitList
  int64_t micro = 0;
  Direction direction = Direction::forward;
  Part part = Part::whole;
  // The unit's first or last visit of that direction in this step; inputs' halves are counted by themselves.
  bool first = false, last = false;
};

// The positions one by one, int64 [sum of counts] on `device`.
DRIVETRAIN_API at::Tensor position_ids(const std::vector<RowRange>& positions, const at::Device& device);

class DRIVETRAIN_API StepContext {
 public:
  virtual ~StepContext();
  virtual int64_t step() const = 0;  // from 1
  virtual Mode mode() const = 0;
  virtual const Batch& batch() const = 0;  // of the current visit's micro-batch
  virtual const Visit& visit() const = 0;
  virtual std::span<const Visit> ahead() const = 0;  // the coming visits of this step, in program order
  // For a tensor [samples, positions, ...] as it goes from layer to layer:
  // rows are activation_positions() unless that is all.
  virtual RandomKey random(std::string_view site) const = 0;
  // Positions of the whole sequence that the columns of batch() are, in their order: what attention and rotation see.
  virtual std::vector<RowRange> positions() const;
  // Those of what goes from layer to layer: the same, or this rank's cut of them (sequence parallelism).
  virtual std::vector<RowRange> activation_positions() const { return positions(); }
  // The recompute policy's word on a region of the current visit's unit; `all` where no policy was chosen.
  virtual Keep keep(std::string_view region) const { return Keep::all; }
  // A figure for the monitors and metrics.jsonl under this name: a device scalar, read after a training step. Rank 0's
  // counts. Error(plugin) for a tensor of several elements and for the runtime's own names ("loss", "lr", ...).
  virtual void metric(const std::string& name, const at::Tensor& scalar) = 0;
};

}  // namespace drivetrain
