// What every dataset must do: be a pure function of step and row, or show what else its rows depend on.
#pragma once

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// Opened for a model of 256 tokens and a run of six rows per step.
Suite dataset_suite();

}  // namespace drivetrain::test
