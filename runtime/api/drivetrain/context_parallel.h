// A context-parallel strategy shares the positions of every sequence out over ranks: it claims an axis of the mesh over
// which gradients are summed, cuts batches (Builder::batch_cuts) and puts an attention around the run's that sees the
// other ranks' positions. Several may be chosen; one that is listed before another lies outside of it. Thread: main.
#pragma once

#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(context_parallel)

namespace drivetrain {

class DRIVETRAIN_API ContextParallel : public Strategy {
 public:
  static constexpr const char* kKind = "context_parallel";
  ~ContextParallel() override;
};

}  // namespace drivetrain
