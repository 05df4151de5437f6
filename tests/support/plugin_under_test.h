// Creates the plugin whose objects are linked into a test, through its own door: descriptor, option table, create.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <drivetrain/services.h>

#include <drivetrain/testkit/kit/host.h>

extern "C" const void* const drivetrain_plugin;

namespace drivetrain::test {

// The plugin `name` of this library with the options of a JSON text. Throws Error(config) with all problems of the
// text.
template <class Kind>
std::unique_ptr<Kind> make_plugin_from(const Host& host, const std::string& name, const Value& params) {
  const auto& descriptor = *static_cast<const DrivetrainDescriptor*>(drivetrain_plugin);
  for (uint32_t i = 0; i < descriptor.entry_count; ++i) {
    const DrivetrainEntry& entry = descriptor.entries[i];
    if (name != entry.name || std::strcmp(Kind::kKind, entry.kind) != 0) continue;
    Problems problems;
    const auto options = static_cast<const OptionTable*>(entry.options())
                             ->parse(params, concat(entry.kind, "/", name), "params", problems);
    problems.throw_if_any();
    const CreateArgs args{options.get(), &host.services};
    return std::unique_ptr<Kind>(static_cast<Kind*>(static_cast<Plugin*>(entry.create(&args))));
  }
  throw std::logic_error("no entry " + name);
}

template <class Kind>
std::unique_ptr<Kind> make_plugin(const Host& host, const std::string& name, const std::string& json = "{}") {
  return make_plugin_from<Kind>(host, name, parse_json(json, "test"));
}

}  // namespace drivetrain::test
