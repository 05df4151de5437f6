// Reads the compiled-in table of sections and keys.
#include "config/known_sections.h"

namespace drivetrain {
namespace {

const char kKnownSectionsText[] = {
#include "known_sections.inc"
};

using KeyFacts = std::map<std::string, KeyFact>;

bool flag(const Value& fact, const char* name) { return fact.find(name) && fact.find(name)->as_bool(); }

std::string text(const Value& fact, const char* name) { return fact.find(name) ? fact.find(name)->as_string() : ""; }

Value::Array list(const Value& fact, const char* name) {
  return fact.find(name) ? fact.find(name)->items() : Value::Array{};
}

SectionFact read_section_fact(const Value& value) {
  Value form = value;
  form.erase("kind");
  return {value.find("kind")->as_string(), true, read_section_form(form)};
}

KeyFact::Verdict read_verdict(const std::string& verdict) {
  if (verdict.empty()) return KeyFact::none;
  if (verdict == "ignored") return KeyFact::ignored;
  if (verdict == "refused") return KeyFact::refused;
  throw fail(ErrorCode::internal, "unknown verdict ", verdict);
}

KeyFacts read_key_facts(const Value& value);

KeyFact read_key_fact(const Value& value) {
  KeyFact fact;
  if (value.is_null()) return fact;
  fact.verdict = read_verdict(text(value, "verdict"));
  fact.off_unless_enabled = flag(value, "off_unless_enabled");
  fact.reason = text(value, "reason");
  fact.accept = list(value, "accept");
  for (const Value& choice : list(value, "choices")) fact.choices.push_back(choice.as_string());
  for (const Value& one : list(value, "refused_if")) {
    const Value* const is = one.find("is");
    fact.refused_if.push_back(
        {text(one, "key"), list(one, "values"), text(one, "unless"), is ? *is : Value(), text(one, "reason")});
  }
  if (const Value* keys = value.find("keys")) fact.keys = read_key_facts(*keys);
  return fact;
}

KeyFacts read_key_facts(const Value& value) {
  KeyFacts facts;
  for (const Value::Member& m : value.members()) facts[m.key] = read_key_fact(m.value);
  return facts;
}

KnownSections* read_known_sections() {
  const Value file = parse_json(kKnownSectionsText, "known_sections.json");
  auto* known = new KnownSections;
  for (const Value::Member& m : file.find("sections")->members()) known->sections[m.key] = read_section_fact(m.value);
  known->keys = read_key_facts(*file.find("keys"));
  for (const Value::Member& m : file.find("beside")->members()) known->beside[m.key] = read_key_facts(m.value);
  known->meaningless = *file.find("meaningless");
  for (const Value::Member& kind : file.find("types")->members())
    for (const Value::Member& m : kind.value.members()) known->types[kind.key][m.key] = m.value.as_string();
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
