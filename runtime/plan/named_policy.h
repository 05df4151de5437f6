// A checkpoint policy of a run with its id. Main thread.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/checkpoint_policy.h>

namespace drivetrain {

struct NamedPolicy {
  std::string id;  // "checkpoint_policy/NAME", "checkpoint_policy/NAME 2" for a second one of that name
  std::shared_ptr<CheckpointPolicy> policy;
};

}  // namespace drivetrain
