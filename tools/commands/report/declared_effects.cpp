#include "report/declared_effects.h"

#include <drivetrain/error.h>
#include <drivetrain/value.h>

#include "base/suggest.h"

namespace drivetrain {
namespace {

DeclaredEffects read_effects(const Value& entry, const ManifestEntry& plugin) {
  DeclaredEffects effects{plugin.kind, plugin.name, false, {}};
  if (const Value* const rounding = entry.find("rounding")) effects.rounding = rounding->as_bool();
  if (const Value* const options = entry.find("same_bits"))
    for (const Value& option : options->items()) effects.same_bits.push_back(option.as_string());
  return effects;
}

// The manifest was read as one before: a line that says its form, then an object with a list of entries.
DeclaredEffects effects_of(const Found& found) {
  const std::string& text = found.file->manifest_text;
  try {
    const Value manifest = parse_json(text.substr(text.find('\n') + 1), "manifest");
    for (const Value& entry : manifest.find("entries")->items())
      if (entry.find("kind")->as_string() == found.entry.kind && entry.find("name")->as_string() == found.entry.name)
        return read_effects(entry, found.entry);
  } catch (const Error& e) {
    throw fail(ErrorCode::plugin, found.file->shown(), ": ", found.entry.id(),
               " has a damaged manifest, in what it says ", "of runs that go on: ", e.what());
  }
  return {};
}

}  // namespace

std::vector<DeclaredEffects> declared_effects(const Registry& registry) {
  std::vector<DeclaredEffects> list;
  for (const Found& found : registry.found()) {
    if (found.state != Found::usable) continue;
    DeclaredEffects effects = effects_of(found);
    if (effects.rounding || !effects.same_bits.empty()) list.push_back(std::move(effects));
  }
  return list;
}

DeclaredEffects checked_effects(const Registry& registry, const Found& found) {
  DeclaredEffects effects = effects_of(found);
  const OptionTable& table = registry.options(found.entry.kind, found.entry.name);
  std::vector<std::string> options;
  for (const OptionField& field : table.fields()) options.push_back(field.name);
  for (const std::string& name : effects.same_bits)
    if (!table.find(name))
      throw fail(ErrorCode::plugin, found.file->shown(), ": SAME_BITS of ", found.entry.id(), " names \"", name,
                 "\", which is no option of it", suggestion(name, options),
                 "\n   name an option in drivetrain_add_plugin, or leave it out, and build the plugin again");
  return effects;
}

}  // namespace drivetrain
