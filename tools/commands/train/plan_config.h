// A config planned by plugins that are open already: what a search, tables and long_context do many times. Main thread.
#pragma once

#include <memory>
#include <string>

#include "internal.h"
#include "plan/prepared_run.h"

namespace drivetrain {

// Of a rank among so many, whose log keeps errors alone.
DRIVETRAIN_INTERNAL RankSetup setup_of_plan(int64_t ranks);

// `path`: whose messages name the config. Error(config): it is refused.
DRIVETRAIN_INTERNAL std::unique_ptr<PreparedRun> plan_config(const Value& config, const std::string& path,
                                                             const Registry& registry, const RankSetup& setup);

}  // namespace drivetrain
