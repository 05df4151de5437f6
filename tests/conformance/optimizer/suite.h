// What every optimizer must do whatever its formula.
#pragma once

#include <functional>
#include <memory>

#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/optimizer/updates.h>

namespace drivetrain::test {

// Gives a fresh optimizer, always with the same options.
using OptimizerMaker = std::function<std::shared_ptr<Optimizer>()>;

Suite optimizer_suite();
// On optimizers that a test makes.
void run_optimizer_suite(const OptimizerMaker& make);

}  // namespace drivetrain::test
