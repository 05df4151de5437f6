// How another system trains what a config says: keys that it sets, and what its steps and its memory have that follows
// from no config. Data of configs/published/systems.json or of a file; `plan CONFIG --profile NAME` plans a run so, and
// `plan --table NAME` the rows that the system published. Reading is on the main thread; a value afterwards.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"
#include "predict/step_work.h"

namespace drivetrain {

struct ProfileTime {
  double step_s = 0, owner_s = 0;  // of a step; of each rank that owns a part of the state, one after another
  double update_bytes = 0;         // that the optimizer moves per parameter
  double overlap = 0;              // share of a computation beside which messages move
  // Messages that are waited for all the same: how what plugins call them begins.
  std::vector<std::string> waits = {};
};

struct ProfileMemory {
  double overhead_gib = 0;  // context, communicators, the allocator's cache
  double whole_bytes = 0;   // per parameter that a rank computes with, of state that no rank shares
  double shared_bytes = 0;  // per parameter that it updates
  double logit_bytes = 0;   // per token and word, of the last stage
  double limit_share = 0;   // rows this near to what the device has are judged as "fits" alone
};

struct Profile {
  std::string name, hardware;
  std::vector<std::string> assumptions;
  std::vector<std::string> sets;  // KEY=VALUE, as --set takes them
  std::optional<ProfileTime> time;
  std::optional<ProfileMemory> memory;
  Value from;                 // constant -> where it is from
  Value columns, constants;   // of rows of tables: see published.h
  std::string shared_values;  // the profile of rows whose values are shared out too, or ""
};

// `name`: of a system of `folder`/systems.json, or the path of a file with one. Error(config): there is no such
// profile, with those that there are; a constant is missing or has no "from", by file, place and key.
DRIVETRAIN_INTERNAL Profile read_profile(const std::string& name, const std::string& folder);

// What of a planned step the profile knows better.
DRIVETRAIN_INTERNAL StepWork with_profile(StepWork work, const ProfileTime& time);

// Where a constant is from: what `from` says of it, or of the group that it is in, or of "*"; "" is not said.
DRIVETRAIN_INTERNAL std::string origin_of(const Value& from, const std::string& constant);
// Of an origin.
inline bool is_fitted(const std::string& origin) { return origin.starts_with("fitted"); }

}  // namespace drivetrain
