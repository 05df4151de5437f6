// A unit is one element of the model's chain: embedding, block i, head. Sharding, recomputation, pipelining and
// autograd work on whole units. The runtime calls forward and backward of each unit itself, so hooks are plain calls
// between them.
//
// A model author derives AutogradUnit (toolkit/units/autograd_unit.h) and writes run(); a hand-written block derives
// Unit. Thread: main. Stream: the current one; a unit does not synchronise.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/param.h>
#include <drivetrain/planned_memory.h>
#include <drivetrain/step_context.h>

DRIVETRAIN_CONTRACT(unit)

namespace drivetrain {

// What one forward visit keeps for its backward visit. The runtime owns one per unit and micro-batch in flight, and
// destroys it after the backward.
struct Saved {
  Tensors inputs, outputs;
  std::any extra;
  std::vector<std::function<void()>> weight_work;  // weight gradients that layers postpone in a split backward
};

// What a unit keeps per token from its forward to its backward, in elements of the run's dtype. An estimate for the
// plan; a few elements per token (statistics of norms) may be left out.
struct KeptElements {
  double whole = 0;   // kept on each rank of those that share the layers (PlanContext::split_layers)
  double shared = 0;  // divided over these ranks
  bool any() const { return whole > 0 || shared > 0; }
};
struct UnitKeeps {
  KeptElements all;     // if nothing is recomputed
  KeptElements inputs;  // the unit's inputs: all that is kept if the whole unit is recomputed
  // The regions that the unit passes to StepContext::keep. `freed`: what is not kept if the region is recomputed; zero
  // if the unit never keeps it.
  struct Region {
    std::string name;
    KeptElements freed;
  };
  std::vector<Region> regions;
};

class DRIVETRAIN_API Unit {
 public:
  explicit Unit(std::string name) : name_(std::move(name)) {}
  virtual ~Unit();

  const std::string& name() const { return name_; }
  // Every parameter that the unit computes with; always the same. If two units use a parameter (tied), the first owns
  // it.
  virtual std::vector<ParamPtr> params() const = 0;

  // Once per micro-batch. x: what the unit before returned, detached; the first unit gets {tokens_BS}. Returns the next
  // unit's x. The unit stores what backward needs in `saved`. The last unit returns {loss}, a float64 scalar: the sum
  // over the valid tokens of the micro-batch (it may be computed in backward); or, without labels, {logits [B, S, V]}.
  // A block may return {residual, delta}; the next unit's first norm adds them. Between two pipeline stages go at most
  // 8 tensors of at most 6 dimensions, whose shapes stay the same through the run.
  // Autograd records in training steps only. If the unit is recomputed, its first forward runs without autograd and its
  // `saved` is dropped; forward runs again before backward and must compute the same values.
  virtual Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) = 0;
  // Once per forward of a training step. dy: one gradient for each tensor that forward returned. Returns one gradient
  // for each of x; undefined means zero. Parameter gradients are written to their slots (Param::write_grad). In a split
  // backward (ctx.visit().part is Part::input) it may leave parameter gradients to backward_weight.
  virtual Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) = 0;
  // The second half of a split backward: the parameter gradients that backward left out. The values of the parameters
  // may be released already. The default runs saved.weight_work.
  virtual void backward_weight(StepContext& ctx, Saved& saved);
  // True: the next unit adds up the tensors that forward returns, and they have one shape ({residual, delta}). The
  // runtime then sends only their sum to the next pipeline stage. Always the same.
  virtual bool returns_summands() const { return false; }
  // True for the model's repeated units (transformer blocks), false for embedding and head. Always the same.
  virtual bool is_block() const { return false; }
  // What the unit keeps in training. No value: not known. Called after the model is built on the meta device.
  virtual std::optional<UnitKeeps> keeps() const { return std::nullopt; }
  // Memory of one visit in training, if `keep` decides what is kept of each region. No value: not known; the plan then
  // counts nothing for this unit, and no activations at all if it is a block. Default: what keeps() returns, without
  // temporaries.
  virtual std::optional<VisitMemory> visit_memory(const VisitShape& shape, const KeepOfRegion& keep) const;

 private:
  std::string name_;
};
using UnitPtr = std::shared_ptr<Unit>;

// The units of this rank's stage in the order of the forward pass. Parameters are shared with the units.
struct DRIVETRAIN_API UnitList {
  std::vector<UnitPtr> units;
  std::vector<ParamPtr> owned(size_t unit) const;  // params() without those that an earlier unit owns
  std::vector<ParamPtr> all() const;               // every parameter once, in chain order
};

}  // namespace drivetrain
