// A context-parallel strategy splits the positions of every sequence over ranks. In `plan` it claims a mesh axis over
// which gradients are summed. In `build` it adds a cut of the batch (Builder::batch_cuts) and wraps the attention
// (Builder::wrap_attention) so that queries attend to the positions of the other ranks. Several may be chosen; the one
// that the configuration lists first is the outermost. No virtual call beyond those of Strategy. Thread: main.
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
