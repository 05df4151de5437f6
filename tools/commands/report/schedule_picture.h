// A schedule drawn: the computations of every stage along time, as text for a terminal and as SVG. Pure; any thread.
#pragma once

#include <string>

#include <drivetrain/schedule.h>
#include <drivetrain/toolkit/pipeline/timeline.h>

#include "internal.h"
#include "plan/run_plan.h"

namespace drivetrain {

// One line per stage, as far apart as they are in time: "F0 F1    B0--- F2 B1---". What does not fit into `width`
// characters or 16 lines is left out in the middle.
DRIVETRAIN_INTERNAL std::string timeline_text(const Timeline& line, size_t width = 132);

// A standalone picture: one row per stage, a box per computation with its micro-batch, shaded by chunk.
DRIVETRAIN_INTERNAL std::string timeline_svg(const Timeline& line, const std::string& title);

// Fills in the schedule's timeline, or leaves it out where there is too much of it to look at (kMostTimelineBoxes).
// Error(internal) for programs that do not fit together.
DRIVETRAIN_INTERNAL void add_timeline(RunPlan& plan, const Schedule& schedule);

// Of a plan with a timeline. The text is empty for one stage and without a timeline: there was too much to draw.
DRIVETRAIN_INTERNAL std::string schedule_text(const RunPlan& plan);
// Error(config) without a timeline.
DRIVETRAIN_INTERNAL std::string schedule_svg(const RunPlan& plan);

}  // namespace drivetrain
