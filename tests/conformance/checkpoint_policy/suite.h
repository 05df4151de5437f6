// What every policy of checkpoints must do whatever it wants saved: the same on all ranks, in every call, and after a
// restart.
#pragma once

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

Suite checkpoint_policy_suite();

}  // namespace drivetrain::test
