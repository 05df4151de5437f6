// What Zero::plan does with keys that say nothing of who shares what. Main thread, in `plan`.
#pragma once

#include <drivetrain/toolkit/sharding/state_sharing.h>

#include "options.h"

namespace drivetrain {

// Why a key of stage 3 has no effect at the others.
inline constexpr const char* kStage3Only = "it is for stage 3; here every rank holds all parameters";

// A key of to_value's object that was given; null if it was not.
inline const Value* given_key(const Value& object, const std::string& key) {
  const Value* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}

// Names the keys that were given and change nothing in this run, each once, and refuses those of other versions.
void report_keys(const ZeroOptions& options, PlanContext& ctx);

// The sections offload_optimizer and offload_param, and their old names.
void choose_offload(const ZeroOptions& options, ShardingOptions& sharding, PlanContext& ctx);

}  // namespace drivetrain
