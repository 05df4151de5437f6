// Plugins as the runtime sees them: libraries that are opened by their descriptor, with option tables that read JSON.
//
// A plugin is looked for among the libraries that `open` was called for, then in the folder of installed plugins, among
// the files KIND_*.so. Nothing is compared with this build: `drivetrain inspect FILE` does that, and the
// program drivetrain-conformance asks it before it opens anything. Libraries stay open until the process ends.
// Thread: any.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/options.h>
#include <drivetrain/plugin.h>
#include <drivetrain/services.h>

namespace drivetrain::test {

class Plugins {
 public:
  struct Name {
    std::string kind, name;
    std::string text() const { return kind + "/" + name; }
  };

  explicit Plugins(std::string folder) : folder_(std::move(folder)) {}

  // What the library offers, in its order. Error(plugin) for a file that is no plugin.
  std::vector<Name> open(const std::string& file);
  // Names of a kind that can be created, sorted: opened ones and those of the folder.
  std::vector<std::string> names(const std::string& kind);

  // Folders of what was opened from elsewhere than the folder of installed plugins.
  std::vector<std::string> outside_folders();

  // Error(plugin) where there is no such plugin.
  const OptionTable& options(const std::string& kind, const std::string& name);
  // With the options of a JSON object. Error(config) with all problems of the options; what the plugin's constructor
  // throws. `services` outlive the object.
  std::shared_ptr<Plugin> create(const std::string& kind, const std::string& name, const Value& options,
                                 const Services& services);

  // As a class of the SDK. `kind`: where it is not the class's own, as for strategies of further kinds.
  template <class Class>
  std::shared_ptr<Class> make(const std::string& kind, const std::string& name, const Value& options,
                              const Services& services) {
    auto object = std::dynamic_pointer_cast<Class>(create(kind, name, options, services));
    if (!object) throw fail(ErrorCode::plugin, kind, "/", name, " is no object of the class of its kind");
    return object;
  }
  template <class Class>
  std::shared_ptr<Class> make(const std::string& name, const std::string& options, const Services& services) {
    return make<Class>(Class::kKind, name, parse_json(options, "options"), services);
  }

 private:
  const DrivetrainDescriptor& open_descriptor(const std::string& file);
  void open_all_of(const std::string& kind);
  const DrivetrainEntry* find(const std::string& kind, const std::string& name) const;
  const DrivetrainEntry& entry(const std::string& kind, const std::string& name);

  const std::string folder_;
  std::recursive_mutex mutex_;
  std::vector<std::pair<std::string, const DrivetrainDescriptor*>> opened_;  // file and what it exports
};

// Those beside the libdrivetrain.so of this process, lib/drivetrain/plugins.
Plugins& installed_plugins();

// Services::plugins: those that are installed. `services`, which those get that it creates, outlive it.
class InstalledMaker final : public PluginMaker {
 public:
  explicit InstalledMaker(const Services& services) : services_(services) {}

 private:
  std::shared_ptr<Plugin> create_kind(const char* kind, const PluginChoice& choice) const override {
    return installed_plugins().create(kind, choice.type, choice.params, services_);
  }
  const Services& services_;
};

// A library that suites open and runs do not find by themselves: lib/drivetrain/testkit/NAME.so of the same
// installation. It may be missing.
std::string testkit_library(const std::string& name);

// bin/drivetrain of the same installation.
std::string installed_program();

}  // namespace drivetrain::test
