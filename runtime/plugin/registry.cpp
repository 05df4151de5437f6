#include "plugin/registry.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/suggest.h"
#include "plugin/open.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

std::string places_text(const SearchPath& search) {
  std::string text;
  for (const SearchPath::Place& place : search.places)
    text += concat("\n   searched  ", place.path, " (", place.origin, ")");
  return text;
}

const DrivetrainEntry& open_entry(const Found& found, std::shared_ptr<const OpenLibrary>& library) {
  library = open_library(found.file);
  return *library->find(found.entry.kind, found.entry.name);  // checked when it was opened
}

// Calls something inside the plugin. Whatever it throws comes back as an Error that names the entry and its file.
template <class Call>
auto guarded(const Found& found, const char* call, Call&& inside) {
  const std::string id = found.entry.id();
  const CurrentCall current({.id = id, .hook = call, .kind = ""});
  try {
    return inside();
  } catch (const Error&) {
    throw error_of_current_call();
  } catch (...) {
    const Error e = error_of_current_call();
    throw fail(e.code(), e.what(), "\n  file    ", found.file->shown());
  }
}

const OptionTable& table_of(const Found& found, const DrivetrainEntry& entry) {
  const void* const table = guarded(found, "options", [&] { return entry.options(); });
  if (!table) throw fail(ErrorCode::plugin, found.entry.id(), " has no option table\n  file    ", found.file->shown());
  return *static_cast<const OptionTable*>(table);
}

}  // namespace

Value LibraryFacts::to_value() const {
  return Value::Object{{"library", library}, {"version", version},   {"file", file},
                       {"origin", origin},   {"build_id", build_id}, {"fingerprint", fingerprint}};
}

Registry::Registry(const SearchPath& search) : found_(discover(search)), places_(places_text(search)) {}

std::vector<KnownPlugin> Registry::known() const {
  std::vector<KnownPlugin> list;
  for (const Found& found : found_)
    if (found.state != Found::shadowed && !found.entry.kind.empty()) list.push_back(found.entry.known());
  return list;
}

std::vector<std::string> Registry::names(const std::string& kind) const {
  std::vector<std::string> list;
  for (const Found& found : found_)
    if (found.state == Found::usable && found.entry.kind == kind) list.push_back(found.entry.name);
  std::sort(list.begin(), list.end());
  return list;
}

const Found& Registry::entry(const std::string& kind, const std::string& name) const {
  for (const Found& found : found_) {
    if (found.entry.kind != kind || found.entry.name != name || found.state == Found::shadowed) continue;
    if (found.state == Found::refused) throw fail(ErrorCode::plugin, found.reason);
    return found;
  }
  const std::vector<std::string> installed = names(kind);
  const std::string near = nearest(name, installed);
  throw fail(ErrorCode::plugin, shown(kind), "/", shown(name), " is not installed",
             near.empty() ? "" : "; did you mean \"" + near + "\"?", "\n   installed for ", kind, ": ",
             installed.empty() ? "nothing" : join(installed), places_);
}

const OptionTable& Registry::options(const std::string& kind, const std::string& name) const {
  const Found& found = entry(kind, name);
  std::shared_ptr<const OpenLibrary> library;
  return table_of(found, open_entry(found, library));  // the shelf keeps it
}

LibraryFacts Registry::facts(const std::string& kind, const std::string& name) const {
  const PluginFile& file = *entry(kind, name).file;
  return {file.manifest.library, file.manifest.version, file.path,
          file.origin,           file.build_id,         file.manifest.fingerprint};
}

std::shared_ptr<Plugin> Registry::create_plugin(const std::string& kind, const std::string& name, const void* options,
                                                const Services& services) const {
  const Found& found = entry(kind, name);
  std::shared_ptr<const OpenLibrary> library;
  const DrivetrainEntry& entry = open_entry(found, library);
  std::shared_ptr<void> defaults;
  if (!options) {
    defaults = table_of(found, entry).defaults();
    options = defaults.get();
  }
  const CreateArgs args{options, &services};
  void* const object = guarded(found, "create", [&] { return entry.create(&args); });
  if (!object)
    throw fail(ErrorCode::plugin, "in ", found.entry.id(), ", create: gave no object\n  file    ", found.file->shown());
  // The deleter owns the library: the object goes first, then the hold on its code. A destructor that throws ends the
  // process, which says whose it was.
  return std::shared_ptr<Plugin>(static_cast<Plugin*>(object), [library, id = found.entry.id()](Plugin* plugin) {
    const CurrentCall current({.id = id, .hook = "destructor", .kind = ""});
    delete plugin;
  });
}

std::string Registry::searched() const {
  std::string text = "plugins are looked for in" + places_;
  for (const Found& found : found_)
    if (found.entry.kind.empty()) text += "\nnot usable: " + found.reason;
  return text;
}

void Registry::log_notes(Log& log) const {
  for (const Found& found : found_) {
    if (found.entry.kind.empty()) log.warning("no plugin is taken from there: " + found.reason);
    if (found.state == Found::shadowed)
      log.info(concat(found.entry.id(), " of ", found.file->shown(), " is ", found.reason));
    if (found.state != Found::usable) continue;
    for (const FieldVerdict& f : found.file->fields)
      if (f.level == FieldVerdict::warning)
        log.warning(concat(found.entry.id(), ": ", f.field, " differs: plugin ", f.plugin, ", runtime ", f.runtime));
  }
}

}  // namespace drivetrain
