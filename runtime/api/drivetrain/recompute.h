// Activation checkpointing: which activations are kept for backward, and which are recomputed.
//
// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost"; Korthikanti et al. 2022, section 5
// (selective). Thread: main; `keep` also on autograd's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <drivetrain/step_context.h>
#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(recompute)

namespace drivetrain {

// A region of a unit that can be recomputed ("attn.core"), as the unit declares it in UnitKeeps. An empty name means
// the whole unit.
struct Region {
  std::string unit;
  std::string_view name;
};

// The inputs of a unit that is recomputed, between its forward and its backward: on the device, in host memory, or in
// another form. Destroyed after restore(), or without it if the run fails.
class DRIVETRAIN_API Held {
 public:
  virtual ~Held();
  // Returns tensors with the same values, number and order as those given to Recompute::hold, on the run's device.
  // Called once, in the unit's backward. Stream: the current one. Main thread.
  virtual Tensors restore() = 0;
};

class DRIVETRAIN_API Recompute : public Strategy {
 public:
  static constexpr const char* kKind = "recompute";
  ~Recompute() override;
  // Called once, after the model is built on the meta device and before the last round of `plan`, with the units of
  // this rank's stage. The policy chooses among the blocks (Unit::is_block) and the regions that they declare
  // (Unit::keeps). May throw Error(config) if an option does not fit the model.
  virtual void choose(const UnitList&) {}
  // What is kept of `region` from its forward to its backward. Called in each forward visit of a
  // training step, for the whole unit and for each region that the unit asks for, and while the run is planned, for
  // every block and each region that it declares. Always returns the same.
  // For a whole unit, every answer but `all` means that the unit's forward runs again in its backward, between the same
  // hooks. The model's last unit is never recomputed, since its backward follows at once.
  virtual Keep keep(const Region& region) const = 0;
  // Stores the inputs of a unit that is recomputed. Called once per forward visit of such a unit, before its forward;
  // must not return null. Stream: the current one. Default: keeps the tensors as they are.
  virtual std::unique_ptr<Held> hold(Tensors inputs) const;
  // False if `hold` puts the inputs into host memory, so that the plan does not count them on the device. Always the
  // same.
  virtual bool leaves_inputs_on_device() const { return true; }
};

}  // namespace drivetrain
