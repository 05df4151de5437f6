// An expert-parallel strategy splits the experts of every mixture over ranks that see different tokens. In `plan` it
// claims a mesh axis of ranks that read other rows (PlanContext::claim_axis); in `build` it replaces the layer factory
// by one whose `experts` has this rank's experts and sends rows to those of others. No virtual call beyond those of
// Strategy. Thread: main.
#pragma once

#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(expert_parallel)

namespace drivetrain {

class DRIVETRAIN_API ExpertParallel : public Strategy {
 public:
  static constexpr const char* kKind = "expert_parallel";
  ~ExpertParallel() override;
};

}  // namespace drivetrain
