// What attention costs beyond the operations of its products: by what its plugin says of its memory. Main thread.
#pragma once

#include "internal.h"
#include "plan/prepared_run.h"
#include "predict/step_work.h"

namespace drivetrain {

// Attention on a GPU computes heads as its kernels pad them. Scores that the plugin keeps whole are written and read.
// `positions`: of queries of a sequence on this rank. Changes a work that has the attention of its shape.
DRIVETRAIN_INTERNAL void add_attention(StepWork& work, const PreparedRun& run, double positions, double stages);

}  // namespace drivetrain
