// An optimizer on several ranks, each of which has parts of the parameters.
#pragma once

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// Parameters that are cut by dimensions, by flat ranges, by both, or that ranks have copies of: three updates with the
// same gradients have the bits of one process.
void check_optimizer_on_ranks(const Subject& subject);

}  // namespace drivetrain::test
