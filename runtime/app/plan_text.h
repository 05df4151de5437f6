// A planned run in words.
#pragma once

#include <string>

#include "compose/composition.h"

namespace drivetrain {

std::string plan_headline(const Composition& run);  // one line
std::string plan_text(const Composition& run);      // mesh, placement, nesting order, batch, memory per rank
std::string capture_text(const Composition& run);   // one line; empty where there is nothing to say

}  // namespace drivetrain
