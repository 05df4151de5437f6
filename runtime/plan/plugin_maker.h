// Plugins that other plugins' options name, from the registry. Main thread.
#pragma once

#include <drivetrain/services.h>

#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

// Both outlive it. `services` are what a plugin gets that it creates.
DRIVETRAIN_INTERNAL std::unique_ptr<const PluginMaker> make_plugin_maker(const Registry& registry,
                                                                         const Services& services);

}  // namespace drivetrain
