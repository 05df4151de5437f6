// What the shape of a model, cut by parallelism, has to compute and to pass over memory. Pure.
#pragma once

#include <string>

#include "predict/step_time.h"

namespace drivetrain {

struct ModelShape {
  double layers = 0, hidden = 0, heads = 0, groups = 0, head_dim = 0, ffn = 0, vocab = 0;
  bool gated = true;
};

// Forward products of the blocks of one stage, and attention, passes and loss beside them, for a shape that tensor
// parallelism and a pipeline cut. Adds to `work`.
struct ShapeCuts {
  double tokens = 0;  // of a micro-batch, on a rank
  double seq_length = 0, tensor = 1, stages = 1, element = 2;
  double tokens_outside = 0;  // of those, between the layers that are cut; 0: all of them
};
DRIVETRAIN_INTERNAL void add_shape(StepWork& work, const ModelShape& shape, const ShapeCuts& cuts);
// Of a work that has its shape: layers with a window compute less, and at the rate of sequences so short.
DRIVETRAIN_INTERNAL void apply_windows(StepWork& work, const ModelFacts& model);

}  // namespace drivetrain
