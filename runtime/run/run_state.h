// What a run needs to go on where it stopped: one list of its owners, for whoever saves, loads, compares or counts it.
// Main thread, between two steps.
#pragma once

#include "run/run.h"
#include "run/state_owner.h"

namespace drivetrain {

// Of a run that is built: the loop's counters and loss scale, the model's values that this rank holds (without those of
// Run::frozen_base), optimizer, learning-rate schedule, dataset, strategies, checkpoint policies and monitors. `bus`:
// delivers events to the monitors, and has delivered them before their state is visited; null: there is none. All of it
// outlives the list.
//
// The trainer of a run that was built anew, visited by who loads, goes on with the same bits. Whoever loads calls
// spread_values afterwards.
DRIVETRAIN_INTERNAL RunState run_state(Run& run, Trainer& trainer, EventBus* bus = nullptr);

DRIVETRAIN_INTERNAL void visit_state(const RunState& state, StateVisitor& visitor);

// Collective: values are new, as after an update; copies in other types, and gathers of the strategies, follow.
DRIVETRAIN_INTERNAL void spread_values(Run& run);

}  // namespace drivetrain
