#include "config_tools/config_schema.h"

#include <algorithm>
#include <cctype>

#include <drivetrain/toolkit/text.h>

#include "config/known_sections.h"
#include "config/run_settings.h"
#include "config/section_words.h"
#include "plugin/kinds.h"

namespace drivetrain {
namespace {

Value object_with(const char* key, Value value) {
  Value object = Value::object();
  object.set(key, std::move(value));
  return object;
}

Value any_of(Value::Array schemas) { return object_with("anyOf", Value(std::move(schemas))); }
Value constant(Value value) { return object_with("const", std::move(value)); }
Value type(const char* name) { return object_with("type", name); }

// Matches the word in any case.
std::string pattern_of(const std::string& word) {
  std::string pattern;
  for (const char c : word) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalpha(u))
      pattern += concat("[", static_cast<char>(std::toupper(u)), static_cast<char>(std::tolower(u)), "]");
    else
      pattern += std::isdigit(u) || c == '_' ? std::string(1, c) : concat("\\", c);
  }
  return pattern;
}

class SchemaWriter {
 public:
  explicit SchemaWriter(const Registry& registry) : registry_(registry), known_(registry.known()) {
    std::erase_if(known_, [&](const KnownPlugin& p) { return !is_usable(p); });
  }

  Value write() {
    Value schema = Value::object(), notes = Value::object();
    schema.set("$schema", "https://json-schema.org/draft/2020-12/schema");
    schema.set("title", "a config of Drivetrain, with the plugins that are installed here");
    schema.set("type", "object");
    add_settings();
    add_known_keys();
    add_sections();
    notes.set("^[_$]", Value::object());
    schema.set("properties", std::move(properties_));
    schema.set("patternProperties", std::move(notes));
    schema.set("additionalProperties", false);
    return schema;
  }

 private:
  // A library that cannot be opened has no options to show.
  bool is_usable(const KnownPlugin& p) const {
    try {
      registry_.options(p.kind, p.name);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  Value options_of(const KnownPlugin& p) const {
    Value schema = registry_.options(p.kind, p.name).schema();
    schema.erase("$schema");
    return schema;
  }

  void add_settings() {
    const Value table = run_settings_table().schema();
    for (const Value::Member& m : table.find("properties")->members()) {
      const bool size = m.key.find("batch_size") != std::string::npos || m.key == "gradient_accumulation_steps";
      properties_.set(m.key, size ? any_of({m.value, constant("auto")}) : m.value);
    }
    Value files = type("array");
    files.set("items", type("string"));
    properties_.set("extends", any_of({type("string"), files, type("null")}));
  }

  // What is refused may still stand there with a value that asks for nothing.
  void add_known_keys() {
    for (const auto& [key, fact] : known_sections().keys) {
      Value schema = Value::object();
      if (fact.verdict == KeyFact::refused) {
        Value::Array off = {constant(false), constant(Value())};
        for (const Value& value : fact.accept) off.push_back(constant(value));
        Value disabled = type("object");
        disabled.set("properties", object_with("enabled", object_with("enum", Value(Value::Array{false, "auto"}))));
        if (!fact.off_unless_enabled) disabled.set("required", Value(Value::Array{"enabled"}));
        off.push_back(std::move(disabled));
        schema = any_of(std::move(off));
      } else if (fact.keys) {
        schema = any_of({known_object(fact), type("boolean"), type("null")});
      }
      if (!fact.reason.empty()) schema.set("description", fact.reason);
      if (fact.verdict != KeyFact::none) schema.set("deprecated", true);
      properties_.set(key, std::move(schema));
    }
  }

  static Value known_object(const KeyFact& fact) {
    Value object = type("object"), keys = Value::object();
    for (const auto& [key, own] : *fact.keys) keys.set(key, Value::object());
    object.set("properties", std::move(keys));
    object.set("patternProperties", object_with("^[_$]", Value::object()));
    object.set("additionalProperties", false);
    return object;
  }

  void add_sections() {
    for (const KindRule& rule : chosen_kind_rules()) {
      std::vector<const KnownPlugin*> plugins;
      for (const KnownPlugin& p : known_)
        if (p.kind == rule.kind) plugins.push_back(&p);
      if (!plugins.empty()) add_kind(rule, plugins);
    }
    for (const auto& [section, fact] : known_sections().sections)
      if (!properties_.find(section))
        properties_.set(section, object_with("enum", Value(Value::Array{false, Value()})));
  }

  void add_kind(const KindRule& rule, const std::vector<const KnownPlugin*>& plugins) {
    Value::Array forms = typed_forms(rule, plugins);
    SectionForm form;
    for (const KnownPlugin* p : plugins) {
      if (p->is_default || p->section == rule.key()) forms.push_back(bare_form(rule, *p, rule.key()));
      if (p->section == rule.key()) merge_section_form(form, p->form);
    }
    properties_.set(rule.key(), section(std::move(forms), form));
    for (const KnownPlugin* p : plugins) {
      if (p->section.empty() || p->section == rule.key()) continue;
      Value::Array own = typed_forms(rule, plugins);
      own.push_back(bare_form(rule, *p, p->section));
      std::vector<std::string> names = p->form.aliases;
      names.push_back(p->section);
      const Value schema = section(std::move(own), p->form);
      for (const std::string& name : names) properties_.set(name, schema);
    }
  }

  // {"type": NAME, "params": {...}} of each.
  Value::Array typed_forms(const KindRule& rule, const std::vector<const KnownPlugin*>& plugins) const {
    Value::Array forms;
    for (const KnownPlugin* p : plugins) {
      Value form = type("object"), members = Value::object();
      members.set("type", name_of(*p));
      members.set("params", any_of({options_of(*p), type("null")}));
      add_words(members);
      add_place(rule, members);
      form.set("properties", std::move(members));
      form.set("patternProperties", object_with("^[_$]", Value::object()));
      form.set("required", Value(Value::Array{"type"}));
      form.set("additionalProperties", false);
      forms.push_back(std::move(form));
      forms.push_back(name_of(*p));
    }
    return forms;
  }

  static void add_words(Value& members) {
    members.set("enabled", any_of({type("boolean"), constant("auto")}));
    for (const auto& [section, keys] : known_sections().beside)
      for (const auto& [key, fact] : keys) members.set(key, Value::object());
  }

  static void add_place(const KindRule& rule, Value& members) {
    if (rule.outside_of.empty()) return;
    Value kinds = Value::array();
    for (const std::string& kind : rule.outside_of) kinds.items().push_back(kind);
    kinds.items().push_back(Value());
    Value place = object_with("enum", std::move(kinds));
    place.set("description", kOutsideOfHelp);
    members.set(kOutsideOf, std::move(place));
  }

  Value bare_form(const KindRule& rule, const KnownPlugin& p, const std::string& section) const {
    Value form = options_of(p);
    Value members = *form.find("properties");
    members.set("enabled", any_of({type("boolean"), constant("auto")}));
    add_place(rule, members);
    // What the reader drops with this value is no option of its own.
    if (const Value* const dropped = known_sections().meaningless.find(section))
      for (const Value::Member& m : dropped->members()) {
        const Value* const own = members.find(m.key);
        members.set(m.key, own ? any_of({*own, constant(m.value)}) : constant(m.value));
      }
    form.set("properties", std::move(members));
    return form;
  }

  static Value name_of(const KnownPlugin& p) {
    std::vector<std::string> words = p.type_names;
    words.insert(words.begin(), p.name);
    std::string pattern;
    for (const std::string& word : words) pattern += (pattern.empty() ? "" : "|") + pattern_of(word);
    Value name = type("string"), examples = Value::array();
    name.set("pattern", concat("^(", pattern, ")$"));
    for (const std::string& word : words) examples.items().push_back(word);
    name.set("examples", std::move(examples));
    return name;
  }

  static Value section(Value::Array forms, const SectionForm& form) {
    for (const char* plain : {"boolean", "null"}) forms.push_back(type(plain));
    if (!form.number.empty()) forms.push_back(type("number"));
    Value none = type("string");
    none.set("pattern", concat("^", pattern_of("none"), "$"));
    forms.push_back(std::move(none));
    Value list = type("array");
    list.set("items", any_of(forms));
    forms.push_back(std::move(list));
    return any_of(std::move(forms));
  }

  const Registry& registry_;
  std::vector<KnownPlugin> known_;
  Value properties_ = Value::object();
};

}  // namespace

Value config_schema(const Registry& registry) { return SchemaWriter(registry).write(); }

}  // namespace drivetrain
