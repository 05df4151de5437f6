// A planned run in words.
#pragma once

#include <string>

#include "internal.h"
#include "plan/run_plan.h"

namespace drivetrain {

std::string plan_headline(const RunPlan& plan);  // one line
// Mesh, nesting order, placement, memory per rank, traffic, what is expensive, the schedule's picture.
DRIVETRAIN_INTERNAL std::string plan_text(const RunPlan& plan);
// bytes that a rank sends in a step, by axis; empty: none
DRIVETRAIN_INTERNAL std::string traffic_text(const RunPlan& plan);
DRIVETRAIN_INTERNAL std::string host_traffic_text(const RunPlan& plan);
std::string param_groups_text(const RunPlan& plan);  // "": the config has none
std::string capture_text(const RunPlan& plan);
// what a checkpoint takes; empty where none is saved
DRIVETRAIN_INTERNAL std::string checkpoint_text(const RunPlan& plan);

// What a checkpoint takes; empty where none is saved.
DRIVETRAIN_INTERNAL std::string checkpoint_text(const RunPlan& plan);  // one line; empty where there is nothing to say

}  // namespace drivetrain
