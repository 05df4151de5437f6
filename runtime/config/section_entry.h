// One entry of a section, taken apart: which type, which options, on or off. Beneath select_plugins.
#pragma once

#include <optional>
#include <string>

#include <drivetrain/options.h>

#include "config/section_form.h"

namespace drivetrain {

struct SectionEntry {
  std::string path;  // "optimizer", "monitors[1]"
  Position where;
  std::string type;  // "" if none is given
  Position type_where;
  Value params;  // an object
  std::string params_path;
  bool enabled = true;
};

// Nothing if the value has no such form; the problem is added then.
std::optional<SectionEntry> read_section_entry(const Value& value, const SectionForm& form, const std::string& path,
                                               Problems& problems);

}  // namespace drivetrain
