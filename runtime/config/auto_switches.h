// "enabled": "auto" of sections: Hugging Face's integration fills it in from its own flags; here the device decides.
// Main thread; no state.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/known_sections.h"

namespace drivetrain {

// What a key of the top level is, if it is a section.
using SectionOf = std::function<std::optional<SectionFact>(const std::string& key)>;
// Has this kind one place?
using HasOnePlace = std::function<bool(const std::string& kind)>;

inline bool is_auto(const Value* value) { return value && value->is_string() && value->as_string() == "auto"; }

// Replaces every `"enabled": "auto"` of `config` by true or false and notes it in `problems`. If a kind allows one
// plugin and none of its sections is enabled, the section with the highest AUTO rank for `device` is.
Value with_switches(Value config, const SectionOf& section_of, const HasOnePlace& has_one_place,
                    const std::string& device, Problems& problems);

}  // namespace drivetrain
