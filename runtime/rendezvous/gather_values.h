// What every rank has to tell, brought together over the store.
#pragma once

#include <string>
#include <vector>

#include "internal.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {

// On rank 0 the values of all ranks in rank order; on others nothing, and they do not wait. `key` is used once per
// store; it takes key/RANK for ranks 1 and up. Collective. Thread: main. Errors: Error(communication) naming the ranks
// that did not tell it; timeout_s is for all of them together.
DRIVETRAIN_INTERNAL std::vector<Value> gather_values(Store& store, const std::string& key, const RankEnvironment& env,
                                                     const Value& mine, double timeout_s);

// Whether `mine` is true on any rank, on every rank. As above; also key/any is taken, and rank 0's answer waited for.
DRIVETRAIN_INTERNAL bool any_of_ranks(Store& store, const std::string& key, const RankEnvironment& env, bool mine,
                                      double timeout_s);

}  // namespace drivetrain
