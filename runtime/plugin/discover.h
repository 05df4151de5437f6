// Which plugin files there are and what each offers, without opening one. First match wins along the search path;
// copies behind it are shadowed and kept in the list with the reason, as refused ones are. A refused first copy is not
// skipped: taking the next one silently would train with another library than the one asked for. Pure functions of the
// file system; any thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/printable.h"
#include "internal.h"
#include "plugin/compare.h"
#include "plugin/manifest.h"

namespace drivetrain {

// Where plugins are looked for, in order. Never the current folder.
struct SearchPath {
  struct Place {
    std::string path;    // a folder, or one file
    std::string origin;  // "plugins.paths, entry 1", "DRIVETRAIN_PLUGIN_PATH, entry 2", "installed"
  };
  std::vector<Place> places;
  // plugins.allow: file name, its stem or "kind/name" -> SHA-256 in hexadecimal. If set, nothing else is opened.
  std::optional<std::map<std::string, std::string>> allow;
  Machine machine = this_machine();

  // config_paths: plugins.paths, already absolute. option_paths: --plugin-path. environment_path: value of
  // DRIVETRAIN_PLUGIN_PATH, separated by ':'. Then <prefix>/lib/drivetrain/plugins beside this libdrivetrain.so.
  static DRIVETRAIN_INTERNAL SearchPath standard(const std::vector<std::string>& config_paths,
                                                 const std::vector<std::string>& option_paths,
                                                 const std::string& environment_path);
  // `object`: the value of plugins.allow, or null for none. Throws Error(config) if it is no such list.
  DRIVETRAIN_INTERNAL void allow_only(const Value& object);
};

// One file on the search path.
struct PluginFile {
  std::string path, origin;
  std::string build_id;
  std::string manifest_text;
  Manifest manifest;                 // no entries if the file could not be read
  std::vector<FieldVerdict> fields;  // the fingerprint; empty if the file could not be read
  std::string allowed_sha256;        // what plugins.allow wants of the bytes; empty: there is no such list
  std::string problem;               // why it is refused, a whole text; empty if it may be opened
  std::string shown() const {
    return one_line(path) + (origin == "installed" ? " (installed)" : " (from " + origin + ")");
  }
};

// One entry of one file. Files that could not be read give one Found with an empty entry.
struct Found {
  enum State { usable, refused, shadowed } state;
  ManifestEntry entry;
  std::shared_ptr<const PluginFile> file;
  std::string reason;  // of refused and shadowed
};

DRIVETRAIN_INTERNAL std::shared_ptr<const PluginFile> inspect_file(const std::string& path, const std::string& origin,
                                                                   const SearchPath& search);
DRIVETRAIN_INTERNAL std::vector<Found> discover(const SearchPath& search);

}  // namespace drivetrain
