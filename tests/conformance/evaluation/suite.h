// What every evaluation must do: rows that are a function of their number, the same on all ranks, and figures that are
// a function of the scores.
#pragma once

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// Opened for a model of 256 tokens and 64 positions.
Suite evaluation_suite();

}  // namespace drivetrain::test
