#include "plugin/discover.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include <drivetrain/error.h>
#include "base/trust.h"
#include "config/run_settings.h"
#include "plugin/manifest_reader.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

void add_places(std::vector<SearchPath::Place>& places, const std::vector<std::string>& paths,
                const std::string& what) {
  for (size_t i = 0; i < paths.size(); ++i)
    if (!paths[i].empty()) places.push_back({fs::absolute(paths[i]).string(), concat(what, ", entry ", i + 1)});
}

std::vector<std::string> split_colons(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ':');) parts.push_back(part);
  return parts;
}

// <prefix>/lib/drivetrain/plugins: beside the library that holds this function, wherever the prefix was moved to.
std::string installed_folder() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&installed_folder), &here) == 0 || !here.dli_fname)
    throw fail(ErrorCode::internal, "libdrivetrain.so cannot find its own file");
  return (fs::canonical(here.dli_fname).parent_path() / "drivetrain" / "plugins").string();
}

// What an allow list says about a file: the digest wanted, or nullptr if none of its names is listed.
const std::string* allowed_digest(const std::map<std::string, std::string>& allow, const PluginFile& file) {
  auto at = allow.find(fs::path(file.path).filename());
  if (at == allow.end()) at = allow.find(fs::path(file.path).stem());
  for (const ManifestEntry& entry : file.manifest.entries)
    if (at == allow.end()) at = allow.find(entry.id());
  return at == allow.end() ? nullptr : &at->second;
}

std::string who(const PluginFile& file) {
  std::string ids;
  for (const ManifestEntry& entry : file.manifest.entries) ids += (ids.empty() ? "" : ", ") + entry.id();
  return ids.empty() ? one_line(fs::path(file.path).filename().string()) : ids;
}

void check_file(PluginFile& file, const SearchPath& search, FolderTrust& looked_at) {
  ManifestFile read = read_manifest(file.path);
  file.build_id = read.build_id;
  file.manifest_text = read.manifest;
  if (!read.problem.empty()) {
    file.problem = concat(who(file), " refused: it ", read.problem, "\n  file    ", file.shown());
    return;
  }
  try {
    file.manifest = parse_manifest(read.manifest);
  } catch (const Error& e) {
    file.problem = concat(who(file), " refused: it ", e.what(), "\n  file    ", file.shown());
    return;
  }
  const bool uses_cuda = std::any_of(file.manifest.entries.begin(), file.manifest.entries.end(),
                                     [](const ManifestEntry& entry) { return entry.uses_cuda; });
  file.manifest.fingerprint = with_reached_headers(std::move(file.manifest.fingerprint), read.headers);
  file.fields = compare_fingerprints(file.manifest.fingerprint, runtime_fingerprint(), search.machine, uses_cuda);
  const std::string strangers = trust_problem(file.path, looked_at);
  if (is_refused(file.fields))
    file.problem = refusal_text(who(file), file.shown(), file.fields);
  else if (!strangers.empty())
    file.problem = concat(who(file), " refused: its file could be changed by strangers\n  file    ", file.shown(),
                          "\n  found   ", strangers);
  if (!file.problem.empty() || !search.allow) return;
  if (const std::string* digest = allowed_digest(*search.allow, file))
    file.allowed_sha256 = *digest;
  else
    file.problem = concat(who(file), " refused: not listed in plugins.allow\n  file    ", file.shown());
}

// Files of a place, by name. A place that is not there is one Found, so that `inspect` shows the mistake.
std::vector<fs::path> files_of(const SearchPath::Place& place, std::string& problem) {
  std::error_code failed;
  if (fs::is_regular_file(place.path, failed)) return {place.path};
  std::vector<fs::path> files;
  for (auto at = fs::directory_iterator(place.path, failed); !failed && at != fs::directory_iterator();
       at.increment(failed))
    if (at->path().extension() == ".so" && !at->path().filename().string().starts_with("drivetrain-"))  // a command
      files.push_back(at->path());
  if (failed) problem = concat("cannot be searched: ", failed.message());
  std::sort(files.begin(), files.end());
  return files;
}

const Found* first_with(const std::vector<Found>& list, const std::string& id) {
  for (const Found& found : list)
    if (!found.entry.kind.empty() && found.entry.id() == id) return &found;
  return nullptr;
}

void add_file(std::vector<Found>& list, std::shared_ptr<const PluginFile> file) {
  if (file->manifest.entries.empty()) list.push_back({Found::refused, {}, file, file->problem});
  for (const ManifestEntry& entry : file->manifest.entries) {
    const Found* first = first_with(list, entry.id());
    if (first) {
      // The first of a name in the list is never itself shadowed.
      list.push_back(
          {Found::shadowed, entry, file, concat("shadowed by ", first->file->shown(), ", which comes first")});
    } else {
      list.push_back({file->problem.empty() ? Found::usable : Found::refused, entry, file, file->problem});
    }
  }
}

std::shared_ptr<const PluginFile> inspect_one(const std::string& path, const std::string& origin,
                                              const SearchPath& search, FolderTrust& looked_at) {
  auto file = std::make_shared<PluginFile>();
  file->path = path;
  file->origin = origin;
  check_file(*file, search, looked_at);
  return file;
}

}  // namespace

SearchPath SearchPath::standard(const std::vector<std::string>& config_paths,
                                const std::vector<std::string>& option_paths, const std::string& environment_path) {
  SearchPath search;
  add_places(search.places, config_paths, "plugins.paths");
  add_places(search.places, option_paths, "--plugin-path");
  add_places(search.places, split_colons(environment_path), "DRIVETRAIN_PLUGIN_PATH");
  search.places.push_back({installed_folder(), "installed"});
  return search;
}

void SearchPath::allow_only(const Value& object) {
  allow.reset();
  if (object.is_null()) return;
  Problems problems;
  allow = read_allow(object, problems);
  problems.throw_if_any();
}

std::shared_ptr<const PluginFile> inspect_file(const std::string& path, const std::string& origin,
                                               const SearchPath& search) {
  FolderTrust none;
  return inspect_one(path, origin, search, none);
}

std::vector<Found> discover(const SearchPath& search) {
  std::vector<Found> list;
  std::set<fs::path> seen;  // a file reached twice shadows nothing
  FolderTrust looked_at;
  for (const SearchPath::Place& place : search.places) {
    std::string problem;
    for (const fs::path& path : files_of(place, problem)) {
      std::error_code broken_link;
      const fs::path real = fs::canonical(path, broken_link);
      if (seen.insert(broken_link ? path : real).second)
        add_file(list, inspect_one(path, place.origin, search, looked_at));
    }
    // Nothing installed yet is no mistake; a folder that somebody named is.
    if (problem.empty() || place.origin == "installed") continue;
    auto file = std::make_shared<PluginFile>();
    file->path = place.path, file->origin = place.origin;
    file->problem = concat(file->shown(), " ", problem);
    list.push_back({Found::refused, {}, file, file->problem});
  }
  return list;
}

}  // namespace drivetrain
