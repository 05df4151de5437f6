// All plugins of a process by kind and name: what is there, what each one's options are, and objects of them. Opens
// only the files that are asked for; opened libraries stay open (plugin/open.h). Immutable once built; const calls from
// any thread, so ranks as threads may share one or have one each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/log.h>
#include <drivetrain/options.h>
#include <drivetrain/plugin.h>
#include "config/sections.h"  // KnownPlugin
#include "internal.h"
#include "plugin/discover.h"

namespace drivetrain {

// What resolved.json says about a plugin.
struct DRIVETRAIN_INTERNAL LibraryFacts {
  std::string library, version, file, origin, build_id;
  Value fingerprint;
  Value to_value() const;
};

class DRIVETRAIN_INTERNAL Registry {
 public:
  explicit Registry(const SearchPath& search);

  const std::vector<Found>& found() const { return found_; }  // everything, refused and shadowed included
  // What configs may name. Refused plugins are among them: choosing one must say why it is refused, not that it is
  // absent.
  std::vector<KnownPlugin> known() const;
  std::vector<std::string> names(const std::string& kind) const;  // installed and not refused, sorted

  // The four below throw Error(plugin): not installed (with the list of what is), or refused (with the reason).
  const Found& entry(const std::string& kind, const std::string& name) const;
  const OptionTable& options(const std::string& kind, const std::string& name) const;  // opens the library
  LibraryFacts facts(const std::string& kind, const std::string& name) const;
  // `options` is what the entry's own table parsed; null: its defaults. The object holds its library. What create
  // throws comes back with the plugin's name in front: an Error keeps its code, anything else becomes Error(plugin).
  std::shared_ptr<Plugin> create_plugin(const std::string& kind, const std::string& name, const void* options,
                                        const Services& services) const;
  template <class Kind>
  std::shared_ptr<Kind> create(const std::string& name, const void* options, const Services& services) const {
    const std::shared_ptr<Plugin> object = create_plugin(Kind::kKind, name, options, services);
    Kind* const typed = dynamic_cast<Kind*>(object.get());
    if (!typed) throw fail(ErrorCode::plugin, Kind::kKind, "/", name, ": create gave an object of another kind");
    return std::shared_ptr<Kind>(object, typed);
  }

  // Says what a user should know once: files and folders that could not be read, shadowed copies of chosen names,
  // warnings of fingerprints. For rank 0, at start.
  void log_notes(Log& log) const;
  // Where plugins were looked for and which files there could not be read: the end of "is not installed".
  std::string searched() const;

 private:
  std::vector<Found> found_;
  std::string places_;  // for messages
};

}  // namespace drivetrain
