// configs/known_sections.json, compiled in: what to say about DeepSpeed's sections and keys where no installed plugin
// claims them. Immutable; any thread.
#pragma once

#include <map>
#include <string>

#include <drivetrain/options.h>

#include "config/section_form.h"
#include "internal.h"

namespace drivetrain {

struct SectionFact {
  std::string kind;
  bool needs_claim = false;  // the default plugin of the kind does not stand in for it
  SectionForm form{};
};

struct KeyFact {
  bool refused = true;              // else ignored with a note
  bool off_unless_enabled = false;  // `enabled` is false by default
  std::string reason;
  Value::Array accept;  // values that are fine although the key is refused
};

struct KnownSections {
  std::map<std::string, SectionFact> sections;
  std::map<std::string, KeyFact> keys;
};

DRIVETRAIN_INTERNAL const KnownSections& known_sections();

// Is this value one that switches its section off: false, `enabled: false`, null?
bool is_switched_off(const Value& value, bool off_unless_enabled);

}  // namespace drivetrain
