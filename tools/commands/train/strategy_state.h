// State of strategies by which a run computes, and for which folders of weights have no place: those say so. Main
// thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

#include "internal.h"
#include "plan/prepared_run.h"
#include "state/weights.h"

namespace drivetrain {

inline constexpr const char* kAveraged = "averaged";  // among the facts of a checkpoint: of which others

// Whether its `build` changes layers, attention or batches. Asks an object of its own. `run`: planned.
DRIVETRAIN_INTERNAL bool decorates(const ChosenPlugin& plugin, const PreparedRun& run, const Registry& registry);

// Of the kind `strategy`, those that keep state. `names`: gets the names of it.
DRIVETRAIN_INTERNAL std::vector<const NamedStrategy*> keeping_state(const PreparedRun& run,
                                                                    std::vector<std::string>& names);
DRIVETRAIN_INTERNAL void visit_strategy(const NamedStrategy& named, StateVisitor& visitor);

// Of a checkpoint: the ids of those whose state it holds.
DRIVETRAIN_INTERNAL std::set<std::string> strategies_with_state(const Checkpoint& checkpoint);

// Says in the model's files which strategies that decorate keep state beside them. Every rank.
DRIVETRAIN_INTERNAL void name_left_state(ExportedWeights& model, const PreparedRun& run);

// Where such files are read. `folder`: a Hugging Face folder, or any other.
DRIVETRAIN_INTERNAL void warn_of_left_state(const std::string& folder, Log& log);

}  // namespace drivetrain
