// Data types of a run, the same for every strategy.
// Masters of what this rank updates are float32 where the parameters are not.
// Source: Micikevicius et al. 2018, "Mixed precision training". Thread: main.
#pragma once

#include <optional>

#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(precision)

namespace drivetrain {

// The factor by which the loss is multiplied before its backward,
// so that small gradients survive a type of small range; the update divides by the same one that the gradients were
// made with. Rules of DeepSpeed's dynamic loss scaler: an overflow skips the update; the `hysteresis`-th and each after
// it halve the scale, not below `minimum`; `window` updates without one double it and, like every good one under
// `consecutive_hysteresis`, begin the count of overflows again.
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
  virtual Dtypes dtypes() const = 0;  // the configuration may ask for other gradient and reduction types
  virtual std::optional<LossScaling> loss_scaling() const { return std::nullopt; }  // nothing: the scale is 1
  // An update whose gradients are not finite is left out and counted; else it ends the run.
  // Always so under loss scaling.
  virtual bool skips_not_finite() const { return false; }
};

}  // namespace drivetrain
