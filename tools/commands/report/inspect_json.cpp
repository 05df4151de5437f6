// The same for editors and scripts.
#include <drivetrain/error.h>

#include "base/trust.h"
#include "plugin/kinds.h"
#include "report/declared.h"
#include "report/inspect.h"

namespace drivetrain {
namespace {

const char* state_name(Found::State state) {
  return state == Found::usable ? "usable" : state == Found::refused ? "refused" : "shadowed";
}

Value strings_value(const std::vector<std::string>& words) {
  Value list = Value::array();
  for (const std::string& word : words) list.items().push_back(word);
  return list;
}

// As the manifest has it; an empty object where the form says nothing.
Value section_form_value(const SectionForm& form) {
  Value value = Value::object();
  if (!form.aliases.empty()) value.set("aliases", strings_value(form.aliases));
  if (!form.number.empty()) value.set("number", form.number);
  if (form.on.is_object()) value.set("on", form.on);
  if (form.off.is_object()) value.set("off", form.off);
  if (form.off_unless_enabled) value.set("off_unless_enabled", true);
  if (form.automatic.is_object()) value.set("auto", form.automatic);
  return value;
}

Value found_value(const Found& found) {
  const ManifestEntry& e = found.entry;
  Value v = Value::object();
  v.set("kind", e.kind);
  v.set("name", e.name);
  v.set("state", state_name(found.state));
  if (!found.reason.empty()) v.set("reason", found.reason);
  v.set("summary", e.summary);
  v.set("section", e.section.empty() && !e.kind.empty() ? section_of_kind(e.kind) : e.section);
  if (const Value form = section_form_value(e.form); !form.members().empty()) v.set("section_form", form);
  v.set("types", strings_value(e.types));
  if (!e.paper.empty()) v.set("paper", e.paper);
  if (e.rounding) v.set("rounding", true);
  if (!e.same_bits.empty()) v.set("same_bits", strings_value(e.same_bits));
  v.set("default", e.is_default);
  v.set("device", e.device.empty() ? Value() : Value(e.device));
  v.set("library", found.file->manifest.library);
  v.set("version", found.file->manifest.version);
  v.set("licence", found.file->manifest.licence);
  v.set("file", found.file->path);
  v.set("origin", found.file->origin);
  v.set("build_id", found.file->build_id);
  return v;
}

// Beneath options_of_table.
Value options_value(const OptionTable& table, void* defaults) {
  Value list = Value::array();
  for (const OptionField& f : table.fields()) {
    Value v = Value::object();
    v.set("name", f.name);
    v.set("type", f.type);
    v.set("help", f.help);
    if (f.group)
      v.set("options", options_value(*f.group, f.member(defaults)));
    else if (f.required)
      v.set("required", true);
    else
      v.set("default", f.get(defaults));
    if (f.minimum) v.set("minimum", *f.minimum);
    if (f.maximum) v.set("maximum", *f.maximum);
    if (f.length) v.set("length", static_cast<int64_t>(*f.length));
    if (!f.choices.empty()) v.set("choices", strings_value(f.choices));
    if (!f.auto_rule.empty()) v.set("auto", f.auto_rule);
    if (!f.aliases.empty()) v.set("aliases", strings_value(f.aliases));
    list.items().push_back(v);
  }
  return list;
}

Value fields_value(const std::vector<FieldVerdict>& fields) {
  static const char* const levels[] = {"same", "note", "warning", "refusal"};
  Value list = Value::array();
  for (const FieldVerdict& f : fields) {
    Value v = Value::object();
    v.set("field", f.field);
    v.set("plugin", f.plugin);
    v.set("runtime", f.runtime);
    v.set("level", levels[f.level]);
    v.set("verdict", f.verdict);
    list.items().push_back(v);
  }
  return list;
}

Value lines_value(const std::vector<Declared::Line>& lines) {
  Value object = Value::object();
  for (const auto& [name, text] : lines) object.set(name, text);
  return object;
}

void add_declared(const Declared& declared, Value& v) {
  if (!declared.abilities.empty()) v.set("abilities", lines_value(declared.abilities));
  if (!declared.untold.empty()) return v.set("untold", declared.untold), void();
  v.set("offers", strings_value(declared.offers));
  v.set("needs", lines_value(declared.needs));
}

void add_options(const OptionTable& table, Value& v) {
  v.set("options", options_of_table(table));
  Value redirects = Value::object();
  for (const OptionRedirect& r : table.redirects()) redirects.set(r.name, r.message);
  v.set("other_names", redirects);
}

// One of a list, which one plugin that cannot be opened must not end.
Value listed(const Registry& registry, const Found& found) {
  Value v = found_value(found);
  if (found.state != Found::usable) return v;
  try {
    add_options(registry.options(found.entry.kind, found.entry.name), v);
  } catch (const Error& e) {
    v.set("state", state_name(Found::refused));
    v.set("reason", e.what());
  }
  return v;
}

// The headers of the contract that the library's sources include, each with the digest that it was built against.
Value headers_of(const PluginFile& file) {
  const Value* const headers = file.manifest.fingerprint.find("api");
  return headers ? *headers : Value::object();
}

}  // namespace

Value options_of_table(const OptionTable& table) { return options_value(table, table.defaults().get()); }

Value inspect_table_json(const Registry& registry, const std::string& kind) {
  Value list = Value::array();
  for (const Found& found : registry.found())
    if (kind.empty() || found.entry.kind == kind) list.items().push_back(listed(registry, found));
  Value v = Value::object();
  v.set("plugins", list);
  return v;
}

Value inspect_entry_json(const Registry& registry, const Found& found) {
  Value v = found_value(found);
  v.set("sha256", sha256(read_bytes(found.file->path)));
  v.set("fingerprint", fields_value(found.file->fields));
  v.set("headers", headers_of(*found.file));
  add_declared(declared_by(registry, found), v);
  add_options(registry.options(found.entry.kind, found.entry.name), v);
  return v;
}

Value inspect_file_json(const PluginFile& file) {
  Value v = Value::object();
  v.set("file", file.path);
  v.set("usable", file.problem.empty());
  if (!file.problem.empty()) v.set("reason", file.problem);
  v.set("build_id", file.build_id);
  v.set("library", file.manifest.library);
  v.set("version", file.manifest.version);
  Value entries = Value::array();
  for (const ManifestEntry& e : file.manifest.entries) entries.items().push_back(e.id());
  v.set("entries", entries);
  v.set("fingerprint", fields_value(file.fields));
  return v;
}

}  // namespace drivetrain
