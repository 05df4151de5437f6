// A tensor-parallel strategy splits every layer over ranks. In `plan` it claims a mesh axis and calls split_layers; in
// `build` it replaces the layer factory by its own. No virtual call beyond those of Strategy. Thread: main.
#pragma once

#include <drivetrain/strategy.h>

DRIVETRAIN_CONTRACT(tensor_parallel)

namespace drivetrain {

class DRIVETRAIN_API TensorParallel : public Strategy {
 public:
  static constexpr const char* kKind = "tensor_parallel";
  ~TensorParallel() override;
};

}  // namespace drivetrain
