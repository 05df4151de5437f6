// Reads the compiled-in table of sections and keys.
#include "config/known_sections.h"

namespace drivetrain {
namespace {

const char kKnownSectionsText[] = {
#include "known_sections.inc"
};

bool flag(const Value& fact, const char* name) { return fact.find(name) && fact.find(name)->as_bool(); }

SectionFact read_section_fact(const Value& value) {
  Value form = value;
  form.erase("kind");
  return {value.find("kind")->as_string(), true, read_section_form(form)};
}

KeyFact read_key_fact(const Value& value) {
  const std::string& verdict = value.find("verdict")->as_string();
  if (verdict != "refused" && verdict != "ignored") throw fail(ErrorCode::internal, "unknown verdict ", verdict);
  KeyFact fact{verdict == "refused", flag(value, "off_unless_enabled"), value.find("reason")->as_string(), {}};
  if (const Value* accept = value.find("accept")) fact.accept = accept->items();
  return fact;
}

KnownSections* read_known_sections() {
  const Value file = parse_json(kKnownSectionsText, "known_sections.json");
  auto* known = new KnownSections;
  for (const Value::Member& m : file.find("sections")->members()) known->sections[m.key] = read_section_fact(m.value);
  for (const Value::Member& m : file.find("keys")->members()) known->keys[m.key] = read_key_fact(m.value);
  return known;
}

}  // namespace

const KnownSections& known_sections() {
  static const KnownSections* const known = read_known_sections();
  return *known;
}

bool is_switched_off(const Value& value, bool off_unless_enabled) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.as_bool();
  const Value* enabled = value.find("enabled");
  if (enabled && enabled->is_bool()) return !enabled->as_bool();
  return off_unless_enabled && value.is_object() && !enabled;
}

}  // namespace drivetrain
