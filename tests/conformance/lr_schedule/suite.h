// What every learning rate schedule must do: be a function of progress, or show what else its rates depend on.
#pragma once

#include <drivetrain/lr_schedule.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// The rate in the step after `update` updates.
double rate_at(const LrSchedule& schedule, int64_t update, const Hyper& base);

Suite lr_schedule_suite();
// On a schedule that a test made.
void run_lr_schedule_suite(LrSchedule& schedule);

}  // namespace drivetrain::test
