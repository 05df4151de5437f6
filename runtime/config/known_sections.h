// configs/known_sections.json, compiled in: what to say about DeepSpeed's sections and keys where no installed plugin
// claims them. Immutable; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "config/section_form.h"
#include "internal.h"

namespace drivetrain {

struct SectionFact {
  std::string kind;
  bool needs_claim = false;  // the default plugin of the kind does not stand in for it
  SectionForm form{};
};

// DeepSpeed refuses the key where another one has one of these values.
struct RefusedIf {
  std::string key;      // a path from the top of the file
  Value::Array values;  // empty: any
  std::string unless;   // a path, or ""
  Value is;             // the value of `unless` with which it is fine
  std::string reason;
};

struct KeyFact {
  enum Verdict { none, ignored, refused };
  Verdict verdict = none;
  bool off_unless_enabled = false;  // `enabled` is false by default
  std::string reason;
  Value::Array accept;               // values of which nothing is said
  std::vector<std::string> choices;  // empty: any value
  std::vector<RefusedIf> refused_if;
  std::optional<std::map<std::string, KeyFact>> keys;  // of its object; nothing: any
};

struct KnownSections {
  std::map<std::string, SectionFact> sections;
  std::map<std::string, KeyFact> keys;
  std::map<std::string, std::map<std::string, KeyFact>> beside;     // section -> key beside `type` and `params`
  Value meaningless;                                                // section -> {key: value} that DeepSpeed never uses
  std::map<std::string, std::map<std::string, std::string>> types;  // kind -> type in lower case -> what to say
};

DRIVETRAIN_INTERNAL const KnownSections& known_sections();

// Is this value one that switches its section off: false, `enabled: false`, null?
bool is_switched_off(const Value& value, bool off_unless_enabled);

}  // namespace drivetrain
