// The end of a step on one rank, to be timed: the norm of the gradients, clipping and the update by an optimizer.
#pragma once

#include <memory>
#include <vector>

#include <drivetrain/optimizer.h>

#include "internal.h"
#include "step/norm.h"

namespace drivetrain {

// Values and gradients, one large flat buffer each, cut as a model is.
struct OptimizerPieces {
  at::Tensor value, grad;
  Trainables chunk;

  // Pieces of `shape`; the last one is what is left, flat.
  DRIVETRAIN_INTERNAL OptimizerPieces(int64_t elements, const std::vector<int64_t>& shape, const at::Device& device);
  DRIVETRAIN_INTERNAL std::vector<ParamPtr> params() const;
};

class DRIVETRAIN_INTERNAL OptimizerStep {
 public:
  OptimizerStep(std::shared_ptr<Optimizer> optimizer, const OptimizerPieces& pieces, const at::Device& device);
  void norm();
  void update();
  void step() { norm(), update(); }

 private:
  std::shared_ptr<Optimizer> optimizer_;
  std::vector<Trainables> chunks_;
  Mesh mesh_;
  GradNorm norm_;
  at::Tensor squares_;
  UpdateArgs args_;
};

}  // namespace drivetrain
