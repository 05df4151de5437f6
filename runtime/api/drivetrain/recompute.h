// Which activations are kept for backward and which are computed again.
//
// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost"; Korthikanti et al.
// 2022, section 5 (selective).
// Thread: main, and autograd's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <drivetrain/step_context.h>
#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(recompute)

namespace drivetrain {

// A named span inside a unit ("attn.core"), as the unit declares it (UnitKeeps), or the whole unit (empty name).
struct Region {
  std::string unit;
  std::string_view name;
};

// What stands for a unit's inputs between its forward and its backward.
class DRIVETRAIN_API Held {
 public:
  virtual ~Held();
  // The same values again, where units compute. Called once.
  virtual Tensors restore() = 0;
};

class DRIVETRAIN_API Recompute : public Strategy {
 public:
  static constexpr const char* kKind = "recompute";
  ~Recompute() override;
  // Once, after the model is built on the meta device and before the last round of `plan`: the units of this rank's
  // stage, to choose among those that are blocks and among the regions that they declare (Unit::is_block, keeps).
  virtual void choose(const UnitList&) {}
  // What is kept of `region` between its forward and its backward. The same answer in both.
  // For a whole unit, anything but `all` means that its forward runs again in its backward, between the same hooks. The
  // chain's last unit is always kept: its backward follows at once.
  virtual Keep keep(const Region& region) const = 0;
  // Takes over the inputs of a unit that is computed again. Default: keeps them as they are.
  virtual std::unique_ptr<Held> hold(Tensors inputs) const;
};

}  // namespace drivetrain
