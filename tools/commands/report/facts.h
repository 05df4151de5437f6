// What a run is made of, for resolved.json: libraries, world, host, LibTorch.
#pragma once

#include "plan/prepared_run.h"

namespace drivetrain {

// The whole configuration with every default filled in, without `_resolved`.
DRIVETRAIN_INTERNAL Value resolved_value(const PreparedRun& run, const Registry& registry);

// "_settled" of it: what the file left to rules, a list of {key, value, rule}.
Value settled_value(const std::vector<AutoValue>& settled);

// The facts under `_resolved`. Without `host` these must be equal on all ranks.
Value resolved_facts(const RunPlan& plan, const Registry& registry);

// Ids of tokens that such facts list under `key` (begin_tokens, end_tokens); nothing: they do not say.
std::optional<std::vector<int32_t>> listed_tokens(const Value& facts, const char* key);

// One line per fact of `old_facts` (read from a resolved.json) that is different now.
std::vector<std::string> differing_facts(const Value& old_facts, const Value& facts);

}  // namespace drivetrain
