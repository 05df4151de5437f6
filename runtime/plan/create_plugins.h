// The chosen plugins as objects. Main thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/prepared_run.h"

namespace drivetrain {

// Id and object, in the order in which they negotiate.
using NamedPlugins = std::vector<std::pair<std::string, std::shared_ptr<Plugin>>>;

// Creates every plugin that is chosen and switched on, and the plain storage where no data_parallel plugin is. Fills
// run.plugins and RunPlan::nesting.
NamedPlugins create_plugins(PreparedRun& run, const Registry& registry);

}  // namespace drivetrain
