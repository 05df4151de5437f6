// For the message about a need that nobody meets: which plugin could have been chosen. Main thread.
#pragma once

#include <string>
#include <vector>

#include "plan/prepared_run.h"

namespace drivetrain {

// Installed plugins that are not chosen, of the kind that `ability` begins with ("attention.returns_lse"), that offer
// it with their default options and do not refuse this run: "attention/standard". Opens their libraries.
std::vector<std::string> plugins_that_offer(const std::string& ability, const Registry& registry,
                                            const PreparedRun& run);

}  // namespace drivetrain
