// What every implementation of expert_parallel must do: several ranks together compute what one does with all experts
// and all rows - outputs, gradients of rows and of every expert's weights - however uneven the choices are, without
// losing a row.
//
// A plugin is asked for its ranks by "size". How a rank is driven stands in rank.h. To add a case of choices, add a
// line to `expert_choices` in suite.cpp.
#pragma once

#include <string>

#include <drivetrain/testkit/expert_parallel/rank.h>
#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

void check_expert_parallel(const ExpertTrial& trial);

Suite expert_parallel_suite();

}  // namespace drivetrain::test
