#include "plugin/manifest.h"

#include <algorithm>
#include <set>

#include <drivetrain/error.h>
#include "base/printable.h"
#include "base/suggest.h"
#include "config/run_settings.h"
#include "plugin/kinds.h"

namespace drivetrain {
namespace {

constexpr char kMagicLine[] = "DRIVETRAIN-MANIFEST 1\n";

// These texts are shown to people and stand in configs: one line, nothing that acts on a terminal.
std::string plain_text(const Value& value, const char* key) {
  const std::string& text = value.as_string();
  if (one_line(text) == text) return text;
  throw fail(ErrorCode::plugin, "has a damaged manifest: control characters in \"", key, "\": ", shown(text));
}

std::string text_field(const Value& object, const char* key, bool needed = true) {
  const Value* field = object.find(key);
  if (!field && !needed) return "";
  if (!field) throw fail(ErrorCode::plugin, "has a manifest without \"", key, "\"");
  return plain_text(*field, key);
}

bool flag_field(const Value& object, const char* key) {
  const Value* field = object.find(key);
  return field && field->as_bool();
}

std::vector<std::string> texts_field(const Value& object, const char* key) {
  std::vector<std::string> texts;
  if (const Value* list = object.find(key))
    for (const Value& text : list->items()) texts.push_back(plain_text(text, key));
  return texts;
}

// A config could not reach such a section, or would mean something else by it.
void check_section(const std::string& section, const ManifestEntry& entry) {
  const auto refuse = [&](const auto&... why) {
    throw fail(ErrorCode::plugin, "offers ", entry.id(), ", which claims the section \"", shown(section),
               "\": ", why..., "; it needs another SECTION");
  };
  if (section.starts_with('_') || section.starts_with('$')) refuse("keys that begin with _ or $ are notes");
  if (run_settings_table().find(section)) refuse("that key is a setting of the run");
  for (const KindRule& rule : kind_rules())
    if (rule.kind != entry.kind && (section == rule.kind || section == rule.key()))
      refuse("that is the section of the kind ", rule.kind);
}

void read_form(const Value& value, ManifestEntry& entry) {
  const Value* form = value.find("section_form");
  if (!form) return;
  if (entry.section.empty())
    throw fail(ErrorCode::plugin, "offers ", entry.id(), " with forms of a section, but without a SECTION");
  try {
    entry.form = read_section_form(*form);
  } catch (const Error& e) {
    throw fail(ErrorCode::plugin, "has a damaged manifest: section \"", shown(entry.section), "\" of ", entry.id(),
               ": ", e.what());
  }
  if (std::ranges::count(entry.form.aliases, entry.section) > 0)
    throw fail(ErrorCode::plugin, "offers ", entry.id(), ", whose section \"", shown(entry.section),
               "\" is an alias of itself");
}

ManifestEntry parse_entry(const Value& value) {
  ManifestEntry entry{
      text_field(value, "kind"),           text_field(value, "name"),       text_field(value, "summary"),
      text_field(value, "section", false), texts_field(value, "types"),     text_field(value, "paper", false),
      text_field(value, "device", false),  flag_field(value, "default"),    flag_field(value, "uses_cuda"),
      flag_field(value, "rounding"),       texts_field(value, "same_bits"), {}};
  if (!is_kind(entry.kind))
    throw fail(ErrorCode::plugin, "offers ", entry.id(), ", and there is no kind \"", entry.kind,
               "\" (kinds: ", kind_names(), ")");
  read_form(value, entry);
  if (!entry.section.empty()) check_section(entry.section, entry);
  for (const std::string& alias : entry.form.aliases) check_section(alias, entry);
  return entry;
}

bool is_type_of(const std::string& type, const ManifestEntry& entry) {
  const auto same = [&](const std::string& name) { return lower_case(name) == lower_case(type); };
  return same(entry.name) || std::any_of(entry.types.begin(), entry.types.end(), same);
}

// A config could mean neither of two entries that answer to one name.
void check_names_apart(const ManifestEntry& one, const ManifestEntry& other) {
  if (one.kind != other.kind) return;
  if (one.name == other.name) throw fail(ErrorCode::plugin, "offers ", one.id(), " twice");
  std::vector<std::string> names = other.types;
  names.push_back(other.name);
  for (const std::string& name : names)
    if (is_type_of(name, one))
      throw fail(ErrorCode::plugin, "offers ", one.id(), " and ", other.id(), ", and both answer to type \"", name,
                 "\"");
}

void check_types(const ManifestEntry& entry) {
  std::set<std::string> seen;
  for (const std::string& type : entry.types)
    if (!seen.insert(lower_case(type)).second)
      throw fail(ErrorCode::plugin, "offers ", entry.id(), " with type \"", type, "\" twice");
}

Manifest parse_object(const Value& object) {
  Manifest manifest{
      text_field(object, "library"), text_field(object, "version"), text_field(object, "licence"), {}, {}};
  const Value* entries = object.find("entries");
  const Value* fingerprint = object.find("fingerprint");
  if (!fingerprint || !fingerprint->is_object()) throw fail(ErrorCode::plugin, "has a manifest without a fingerprint");
  manifest.fingerprint = *fingerprint;
  if (!entries || entries->items().empty())
    throw fail(ErrorCode::plugin, "offers nothing: its manifest has no entries");
  for (const Value& value : entries->items()) {
    ManifestEntry entry = parse_entry(value);
    for (const ManifestEntry& earlier : manifest.entries) check_names_apart(earlier, entry);
    check_types(entry);
    manifest.entries.push_back(std::move(entry));
  }
  return manifest;
}

}  // namespace

Manifest parse_manifest(const std::string& text) {
  const size_t magic = sizeof kMagicLine - 1;
  if (text.compare(0, magic, kMagicLine) != 0) {
    const std::string line = text.substr(0, std::min<size_t>(text.find('\n'), 40));
    throw fail(ErrorCode::plugin, "has a manifest of another form: wanted \"DRIVETRAIN-MANIFEST 1\", found \"",
               shown(line), "\"");
  }
  try {
    return parse_object(parse_json(text.substr(magic), "manifest"));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::plugin) throw;
    throw fail(ErrorCode::plugin, "has a damaged manifest: ", e.what());  // not JSON, or a value of the wrong type
  }
}

}  // namespace drivetrain
