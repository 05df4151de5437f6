// "auto" in the three batch sizes. Main thread; no state.
#pragma once

#include <drivetrain/options.h>

namespace drivetrain {

// Takes each "auto" out of `settings`, an object: what two of the sizes leave open follows from them (solve_batch), and
// the rest has the defaults of Hugging Face's Trainer, 8 sequences and 1 micro-batch. `problems` is told.
void settle_batch_sizes(Value& settings, Problems& problems);

}  // namespace drivetrain
