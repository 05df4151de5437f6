// Who writes what of a save. Several ranks may hold copies of a part (replicas of data parallelism, stages that share
// an embedding); one of them writes it, so that every element is written once and the ranks' shares are about equal.
#pragma once

#include <vector>

#include "checkpoint/held_state.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {

// For each of `parts` of this rank: whether this rank writes it. Collective over the store, under keys that begin with
// `round`, once for each: what ranks hold does not change from save to save. Error(plugin) if the parts of all ranks
// together are not the whole of some tensor; Error(communication) naming the ranks that did not answer in `timeout_s`.
DRIVETRAIN_INTERNAL std::vector<bool> choose_writers(const std::vector<HeldPart>& parts, Store& store,
                                                     const RankEnvironment& env, double timeout_s,
                                                     const std::string& round = "checkpoint/");

// The same for ranks whose parts are all known. `parts[r]`: of rank r. Returns one list per rank.
DRIVETRAIN_INTERNAL std::vector<std::vector<bool>> choose_writers(const std::vector<std::vector<HeldPart>>& parts);

}  // namespace drivetrain
