// The data types of a run, and loss scaling. They are the same under every strategy: if the parameters are not float32,
// this rank updates float32 master weights.
// Source: Micikevicius et al. 2018, "Mixed precision training". Thread: main.
#pragma once

#include <optional>

#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(precision)

namespace drivetrain {

// The loss is multiplied by the loss scale before its backward pass, so that small gradients do not underflow in a type
// of small range. The update divides by the scale that the gradients were computed with.
// The rules are those of DeepSpeed's dynamic loss scaler. An overflow skips the update. From the `hysteresis`-th
// overflow on, each one also halves the scale, down to `minimum`. The update after `window` updates without an overflow
// doubles the scale. The doubling resets the count of overflows; with `consecutive_hysteresis`, every update without an
// overflow does.
struct LossScaling {
  bool dynamic = true;  // false: the scale stays `initial`
  double initial = 65536;
  int64_t window = 1000, hysteresis = 2;
  bool consecutive_hysteresis = false;
  double minimum = 1;
};

class DRIVETRAIN_API Precision : public Strategy {
 public:
  static constexpr const char* kKind = "precision";
  ~Precision() override;
  // Called once before `plan`. The configuration may set other gradient and reduction types.
  virtual Dtypes dtypes() const = 0;
  // Called once before the first step. No value: there is no loss scale.
  virtual std::optional<LossScaling> loss_scaling() const { return std::nullopt; }
  // Called once before the first step. What the runtime does if the gradients of a step are not finite: true skips the
  // update and counts it, false ends the run. With loss scaling the update is always skipped.
  virtual bool skips_not_finite() const { return false; }
};

}  // namespace drivetrain
