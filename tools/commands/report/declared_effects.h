// What a plugin's manifest says of a run that goes on without it or with other options of it (drivetrain_add_plugin:
// ROUNDING, SAME_BITS). Of what it does not say, the numbers change. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

struct DeclaredEffects {
  std::string kind, name;
  bool rounding = false;               // without it and with any other options: the same numbers but for rounding
  std::vector<std::string> same_bits;  // options that change no bit
};

// Of every plugin that may be opened and declares something. Opens none. Error(plugin) where a manifest has something
// else in their places.
DRIVETRAIN_INTERNAL std::vector<DeclaredEffects> declared_effects(const Registry& registry);

// Of one, whose library it opens: Error(plugin) where SAME_BITS names what is no option of it.
DRIVETRAIN_INTERNAL DeclaredEffects checked_effects(const Registry& registry, const Found& found);

}  // namespace drivetrain
