// What a run needs to go on where it stopped, shown to a StateVisitor: the loop's counters and loss scale, the model's
// values that this rank holds ("model/..."), optimizer, learning-rate schedule, dataset, strategies. A name is the
// owner, a slash, and the name that the owner gives: "model/block.0.norm1.weight", "trainer/next_step". Where a rank
// holds several parts of a tensor, each is visited, with its layout. Main thread, between two steps.
#pragma once

#include "run/run.h"

namespace drivetrain {

// The trainer of a run that was built anew, shown the same, goes on with the same bits. Whoever loads calls
// spread_values afterwards.
DRIVETRAIN_INTERNAL void visit_state(Run& run, Trainer& trainer, StateVisitor& visitor);

// Collective: values are new, as after an update; copies in other types, and gathers of the strategies, follow.
DRIVETRAIN_INTERNAL void spread_values(Run& run);

}  // namespace drivetrain
