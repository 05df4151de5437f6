// The two spellings of a section: {"type", "params"}, or its bare options.
#pragma once

#include <string>

#include <drivetrain/value.h>

namespace drivetrain {

inline constexpr const char* kOutsideOf = "outside_of";  // of kinds whose plugins may be moved

inline constexpr const char* kOutsideOfHelp =
    "the kind of plugins that this one stands directly outside of; null: it stands innermost, where its kind does";

inline bool is_section_word(const std::string& key) {
  return key == "type" || key == "params" || key == "enabled" || key == kOutsideOf;
}

inline bool is_typed(const Value& section) { return section.find("type") || section.find("params"); }

}  // namespace drivetrain
