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
  Value outside_of = {};  // as it stands there; null: it does not
};

// Nothing if the value has no such form; the problem is added then. `may_move`: "outside_of" is a word of the section.
std::optional<SectionEntry> read_section_entry(const Value& value, const SectionForm& form, const std::string& path,
                                               Problems& problems, bool may_move = false);

}  // namespace drivetrain
