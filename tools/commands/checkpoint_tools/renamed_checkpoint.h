// The same state under other names: a checkpoint of another program as one of ours, and one of ours as another program
// names it, by a model's weight rules. Nothing is copied; reading a part reads the parts that it is made of.
//
// Thread: const calls from any thread. Errors: Error(checkpoint) that lists what is missing or of another shape.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/model.h>

#include "internal.h"

namespace drivetrain {

using ParamShapes = std::map<std::string, std::vector<int64_t>>;

// What is asked of `foreign` to be ours: the rules, the shapes of all parameters, and the id of the optimizer that
// shall have the moments ("optimizer/adamw"). `foreign` has names as checkpoint_format.h describes; in the result they
// are those that a run gives them ("model/block.0.norm1.weight"). Facts are the foreign ones. `only`: the parameters
// that it is asked for; empty: all.
DRIVETRAIN_INTERNAL std::shared_ptr<const Checkpoint> as_native(std::shared_ptr<const Checkpoint> foreign,
                                                                const WeightRules& rules, const ParamShapes& shapes,
                                                                const std::string& optimizer_id,
                                                                const std::set<std::string>& only = {});

// The inverse, with `facts`. Tensors of ours that are no weight and no moment are left out.
DRIVETRAIN_INTERNAL std::shared_ptr<const Checkpoint> as_foreign(std::shared_ptr<const Checkpoint> native,
                                                                 const WeightRules& rules, const ParamShapes& shapes,
                                                                 Value facts);

}  // namespace drivetrain
