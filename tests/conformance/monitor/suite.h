// What every monitor must do: take any run's events, also those it does not know; change nothing of the run; have
// written all when the run ends; count on after a stop; and name its file where it cannot be written.
#pragma once

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

Suite monitor_suite();

}  // namespace drivetrain::test
