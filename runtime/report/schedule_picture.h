// A schedule drawn: the computations of every stage along time, as text for a terminal and as SVG. Pure; any thread.
#pragma once

#include <string>

#include "internal.h"
#include "plan/composition.h"
#include "step/timeline.h"

namespace drivetrain {

// One line per stage, as far apart as they are in time: "F0 F1    B0--- F2 B1---". What does not fit into `width`
// characters or 16 lines is left out in the middle.
DRIVETRAIN_INTERNAL std::string timeline_text(const Timeline& line, size_t width = 132);

// A standalone picture: one row per stage, a box per computation with its micro-batch, shaded by chunk.
DRIVETRAIN_INTERNAL std::string timeline_svg(const Timeline& line, const std::string& title);

// Of a planned training step, its pieces weighed as the partition did. The text is empty for one stage, or if there is
// too much to draw.
DRIVETRAIN_INTERNAL std::string schedule_text(const Composition& run);
// Error(config) if there is too much to draw.
DRIVETRAIN_INTERNAL std::string schedule_svg(const Composition& run);

}  // namespace drivetrain
