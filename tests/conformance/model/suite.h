// What every model must do: units and parameters that do not depend on who asks, gradients that are the slope of the
// loss, a loss that is a sum over the labels that count, a chain that may be cut anywhere, and names for its weights.
// It is built of plain layers with attention/standard, and trained whole.
#pragma once

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

Suite model_suite();

}  // namespace drivetrain::test
