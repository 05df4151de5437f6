// The two spellings of a section: {"type", "params"}, or its bare options.
#pragma once

#include <string>

#include <drivetrain/value.h>

namespace drivetrain {

inline bool is_section_word(const std::string& key) { return key == "type" || key == "params" || key == "enabled"; }

inline bool is_typed(const Value& section) { return section.find("type") || section.find("params"); }

}  // namespace drivetrain
