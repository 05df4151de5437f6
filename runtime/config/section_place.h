// Where a config puts a plugin in the order of those that act around the model. Beneath select_plugins.
#pragma once

#include <string>
#include <vector>

#include "config/section_entry.h"
#include "config/sections.h"

namespace drivetrain {

// The kind that the entry of a plugin of `kind` names by "outside_of"; "" where it names none, or with a problem added.
std::string read_place(const SectionEntry& entry, const std::string& kind, const std::vector<KindRule>& kinds,
                       Problems& problems);

}  // namespace drivetrain
