// What ranks have to hold alike: the numbers of a run's state, and the values of parameters that several of them hold
// copies of. Nothing else would tell: each goes on training with its own, and a checkpoint has those of one of them.
// Compared whenever a checkpoint is saved, copies also at the end of a run whose last step was not saved: one pass over
// this rank's parameters, and a number for each.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/held_state.h"

namespace drivetrain {

// Of those of `parts` that are parameters: which part it is, and a digest of its bits, one after the other. Any thread,
// while the values do not change.
DRIVETRAIN_INTERNAL Value digests_of(const std::vector<HeldPart>& parts);

// An object of both, which a rank tells rank 0: its "counters" (HeldState::common_counters) and its "digests".
DRIVETRAIN_INTERNAL Value held_alike(Value counters, Value digests);

// `held[r]`: of rank r. Names what differs, the ranks and what to do; "": nothing does.
DRIVETRAIN_INTERNAL std::string differing_numbers(const std::vector<Value>& held);
DRIVETRAIN_INTERNAL std::string differing_copies(const std::vector<Value>& held);

}  // namespace drivetrain
