// One step of the model's main chain: embedding, block i, head.
// The grain of sharding, recompute, pipelining and autograd:
// a unit's backward is a call the runtime makes, so hooks are plain calls in program order.
//
// A model author derives AutogradUnit (toolkit/units/autograd_unit.h) and writes run(); a hand-written block derives Unit.
// Thread: main.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/param.h>
#include <drivetrain/step_context.h>

DRIVETRAIN_CONTRACT(unit)

namespace drivetrain {

// What one forward visit leaves for its backward visit. Owned by the runtime, one per unit and micro-batch in flight.
struct Saved {
  Tensors inputs, outputs;
  std::any extra;
  std::vector<std::function<void()>> weight_work;  // parked by layers under a split backward
};

// What a unit keeps of one token from its forward to its backward, in elements of the run's dtype. Figures for the
// plan; a few numbers per token (statistics of norms) may be left out.
struct KeptElements {
  double whole = 0;   // on every rank that shares the layers
  double shared = 0;  // by all of those ranks together (PlanContext::share_layers)
  bool any() const { return whole > 0 || shared > 0; }
};
struct UnitKeeps {
  KeptElements all;     // where nothing is computed again
  KeptElements inputs;  // what it takes in: all that is kept where the whole unit runs again
  // Regions that it asks StepContext::keep for, and what it keeps less where one of them is computed again: nothing, if
  // the unit does so in any case.
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
  // Every parameter the unit computes with. A parameter used by two units (tied) belongs to the first.
  virtual std::vector<ParamPtr> params() const = 0;

  // x: what the unit before returned (the first one gets {tokens_BS}), detached. Returns the next unit's x.
  // The last unit returns {loss}: a float64 scalar, the sum over the valid tokens of the micro-batch,
  // final after the unit's backward where there is one; without labels {logits [B, S, V]}. A block may hand on
  // {residual, delta}, to be added by the next unit's first norm.
  virtual Tensors forward(const Tensors& x, StepContext& ctx, Saved& saved) = 0;
  // dy: gradients of what forward returned. Returns gradients of x; those of parameters go to their slots.
  virtual Tensors backward(const Tensors& dy, StepContext& ctx, Saved& saved) = 0;
  // The second half, under a split schedule: gradients of parameters, whose values may be gone by now. The default runs
  // saved.weight_work.
  virtual void backward_weight(StepContext& ctx, Saved& saved);
  // What forward returns are summands that its reader adds up, all of one shape ({residual, delta}):
  // between ranks goes their sum.
  virtual bool returns_summands() const { return false; }
  // One of the model's repeated units, as against its ends.
  virtual bool is_block() const { return false; }
  // What it keeps in training. Nothing: it does not say. Asked once the model is built on the meta device.
  virtual std::optional<UnitKeeps> keeps() const { return std::nullopt; }

 private:
  std::string name_;
};
using UnitPtr = std::shared_ptr<Unit>;

// The units of this rank in chain order, and who owns which parameter.
struct DRIVETRAIN_API UnitList {
  std::vector<UnitPtr> units;
  std::vector<ParamPtr> owned(size_t unit) const;  // params() less those an earlier unit owns
  std::vector<ParamPtr> all() const;               // every parameter once, in chain order
};

}  // namespace drivetrain
