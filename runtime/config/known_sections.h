// configs/known_sections.json, compiled in: which kind a section belongs to, and what to say about DeepSpeed's keys
// that no plugin claims. Immutable; any thread.
#pragma once

#include <map>
#include <string>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

struct SectionFact {
  std::string kind;
  bool needs_claim = false;         // the default plugin of the kind does not stand in for it
  bool off_unless_enabled = false;  // `enabled` is false by default
  Value off;                        // object: option -> value that means "absent"
  std::string same_as;              // the section that plugins claim, if this is another name of it
  Value on{};                       // object: the options that `true` stands for; null: the defaults
  std::string number;               // the option that a bare number stands for; "": numbers are refused
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

// The section that users write for a kind: "scheduler" for lr_schedule; the kind's own name where there is no other.
DRIVETRAIN_INTERNAL std::string section_of_kind(const std::string& kind);

// Is this value one that switches its section off: false, `enabled: false`, null?
bool is_switched_off(const Value& value, bool off_unless_enabled);

}  // namespace drivetrain
