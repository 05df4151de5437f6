#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <drivetrain/toolkit/text.h>

#include "doctor/checks.h"
#include "doctor/elf_links.h"
#include "plugin/open.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSome = 12;  // symbols that are named

// The folders in which the dynamic linker looks besides those that a library names.
std::vector<std::string> linker_folders() {
  std::vector<std::string> folders;
  const char* const set = std::getenv("LD_LIBRARY_PATH");
  std::istringstream words(set ? set : "");
  for (std::string word; std::getline(words, word, ':');)
    if (!word.empty()) folders.push_back(word);
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/etc/ld.so.conf.d", none)) {
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with('/')) folders.push_back(line);
  }
  for (const char* folder :
       {"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"})
    folders.emplace_back(folder);
  return folders;
}

bool is_open(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle) dlclose(handle);
  return handle != nullptr;
}

// Where the linker would find it; empty: nowhere.
std::string found_at(const std::string& library, const std::vector<std::string>& run_paths) {
  std::error_code none;
  for (const auto& folders : {run_paths, linker_folders()})
    for (const std::string& folder : folders)
      if (fs::exists(fs::path(folder) / library, none)) return (fs::path(folder) / library).string();
  return "";
}

std::string readable(const std::string& symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  const std::string name = text ? text : symbol;
  std::free(text);
  return name.size() > 160 ? name.substr(0, 160) + "..." : name;
}

// Symbols that neither this process nor a library that would be opened with the plugin has.
std::vector<std::string> missing_symbols(const ElfLinks& links, const std::vector<std::string>& further) {
  std::vector<std::string> missing;
  for (const std::string& symbol : links.wanted)
    if (!dlsym(RTLD_DEFAULT, symbol.c_str())) missing.push_back(symbol);
  std::set<std::string> given;
  for (const std::string& path : missing.empty() ? std::vector<std::string>() : further) {
    const ElfLinks other = read_links(path);
    given.insert(other.given.begin(), other.given.end());
  }
  std::erase_if(missing, [&](const std::string& symbol) { return given.count(symbol) > 0; });
  return missing;
}

std::string remedy_for_symbols(const std::vector<std::string>& missing) {
  const auto any_has = [&](const char* word) {
    return std::any_of(missing.begin(), missing.end(),
                       [&](const std::string& s) { return readable(s).find(word) != std::string::npos; });
  };
  if (any_has("drivetrain::")) return "build it again against this SDK: its libdrivetrain.so has them no longer";
  if (any_has("at::") || any_has("c10::") || any_has("torch::")) return "build it again against this LibTorch";
  return "link the library that has them: LINK of drivetrain_add_plugin";
}

void look_at_links(Findings& findings, const std::string& path) {
  const ElfLinks links = read_links(path);
  if (!links.problem.empty()) return;  // told already
  std::vector<std::string> further, absent;
  for (const std::string& library : links.needed) {
    if (is_open(library)) continue;
    const std::string place = found_at(library, links.run_paths);
    (place.empty() ? absent : further).push_back(place.empty() ? library : place);
  }
  if (absent.empty())
    findings.ok("links", join(links.needed));
  else
    findings.problem(
        "links",
        concat("not found: ", join(absent), "\nlooked in ", links.run_paths.empty() ? "" : join(links.run_paths) + ", ",
               "LD_LIBRARY_PATH and the system's folders"),
        "install what is missing, or name its folder in the RPATH of the plugin", ErrorCode::plugin);
  const std::vector<std::string> missing = missing_symbols(links, further);
  if (missing.empty())
    return findings.ok("symbols", concat("all ", links.wanted.size(), " that it wants of others are there"));
  std::string text = concat(missing.size(), missing.size() == 1 ? " is" : " are", " in no library that it links");
  for (size_t i = 0; i < std::min(missing.size(), kSome); ++i) text += "\n" + readable(missing[i]);
  if (missing.size() > kSome) text += "\n...";
  findings.problem("symbols", text, remedy_for_symbols(missing), ErrorCode::plugin);
}

void look_at_headers(Findings& findings, const PluginFile& file) {
  const Value own = runtime_fingerprint();
  const Value *const theirs = file.manifest.fingerprint.find("api"), *const ours = own.find("api");
  if (!theirs || !theirs->is_object() || !ours || !ours->is_object()) return;
  std::string same;
  for (const auto& [name, digest] : theirs->members()) {
    const Value* const mine = ours->find(name);
    const std::string found = digest.is_string() ? digest.as_string() : digest.to_json();
    if (mine && *mine == digest)
      same += concat(same.empty() ? "" : "\n", one_line(name), "  ", one_line(found));
    else
      findings.problem(
          shown(name),
          concat("plugin ", one_line(found), ", runtime ", mine ? mine->as_string() : "has no such header"),
          "build the sources that include it again", ErrorCode::plugin);
  }
  if (!same.empty()) findings.ok("headers", "the same as here:\n" + same);
}

void look_at_fingerprint(Findings& findings, const PluginFile& file) {
  for (const FieldVerdict& field : file.fields) {
    const std::string text =
        concat("plugin ", field.plugin, ", runtime ", field.runtime, field.verdict.empty() ? "" : ": " + field.verdict);
    if (field.field == "api") continue;  // header by header
    if (field.level == FieldVerdict::refusal)
      findings.problem(field.field, text,
                       field.field == "cpu" ? "build it with an -march that this processor has"
                                            : "build it again against this SDK and this LibTorch",
                       ErrorCode::plugin);
    else if (field.level == FieldVerdict::warning)
      findings.warning(field.field, text, "build it again against this LibTorch");
    else
      findings.ok(field.field, text);
  }
}

}  // namespace

void look_at_plugin_file(Findings& findings, const std::string& path, const SearchPath& search) {
  findings.begin("plugin");
  const auto file = inspect_file(path, "command line", search);
  findings.ok("file", one_line(path));
  if (file->fields.empty()) return findings.problem("refused", file->problem, "", ErrorCode::plugin);
  for (const ManifestEntry& entry : file->manifest.entries)
    findings.ok("offers", concat(entry.id(), "  ", entry.summary));
  findings.ok("library", concat(file->manifest.library, " ", file->manifest.version, ", ", file->manifest.licence,
                                ", build-id ", file->build_id.empty() ? "none" : file->build_id));
  look_at_fingerprint(findings, *file);
  look_at_headers(findings, *file);
  look_at_links(findings, path);
  if (!file->problem.empty()) {
    if (!is_refused(file->fields)) findings.problem("refused", file->problem, "", ErrorCode::plugin);
    return findings.ok("opens", "not tried: a file that is refused is not opened");
  }
  try {
    open_library(file);
    findings.ok("opens", "yes, and its option tables are right");
  } catch (const Error& e) {
    findings.problem("opens", e.what(), "", ErrorCode::plugin);
  }
}

}  // namespace drivetrain
