// A tensor-parallel strategy shares every layer out over ranks: it claims an axis of the mesh, says share_layers in
// `plan`, and decorates the layer factory in `build`. Thread: main.
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
