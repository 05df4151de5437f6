// Data types of a run, the same for every strategy. Masters of what this rank updates are float32 where the parameters are not.
// Source: Micikevicius et al. 2018, "Mixed precision training". Thread: main.
#pragma once

#include <drivetrain/strategy.h>

namespace drivetrain {

class DRIVETRAIN_API Precision : public Strategy {
 public:
  static constexpr const char* kKind = "precision";
  ~Precision() override;
  virtual Dtypes dtypes() const = 0;
};

}  // namespace drivetrain
