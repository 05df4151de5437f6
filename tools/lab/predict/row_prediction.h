// What a row of a published table comes to by the model of step_time.h and by its system's profile. Pure.
#pragma once

#include "predict/published.h"
#include "predict/step_time.h"

namespace drivetrain {

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

// Operations per token, forward and backward, the square of attention halved.
DRIVETRAIN_INTERNAL double model_flops(const ModelShape& shape, double seq_length);

DRIVETRAIN_INTERNAL StepWork work_of(const PublishedRow& row, const TrainingSystem& system);

struct MemoryPart {
  std::string what;
  double gib = 0;
};
struct RowMemory {
  double gib = 0;
  std::vector<MemoryPart> parts;
};
// Of the fullest rank.
DRIVETRAIN_INTERNAL RowMemory memory_of(const PublishedRow& row, const SystemMemory& profile);

}  // namespace drivetrain
