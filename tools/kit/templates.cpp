#include "kit/templates.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "kit/kit_error.h"

namespace drivetrain::kit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommon = "common";
constexpr const char* kAbout = "about.md";
constexpr const char* kAboutWord = "about_the_plugin\n";

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw KitError(Exit::io, "cannot read the template " + path.string() + ": " + std::strerror(errno));
  return text;
}

void replace_all(std::string& text, const std::string& word, const std::string& by) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
}

std::string sdk_version() {  // 0.1 of 0.1.0
  const std::string release = DRIVETRAIN_RELEASE;
  return release.substr(0, release.rfind('.'));
}

std::string filled_in(std::string text, const PluginName& plugin) {
  const std::pair<const char*, std::string> words[] = {{"plugin_kind", plugin.kind},
                                                       {"sdk_version", sdk_version()},
                                                       {"NewPlugin", plugin.class_name()},
                                                       {"new_plugin", plugin.name}};
  for (const auto& [word, by] : words) replace_all(text, word, by);
  return text;
}

}  // namespace

std::string PluginName::class_name() const {
  std::string made;
  bool begins = true;
  for (const char c : name) {
    if (c != '_') made += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = c == '_';
  }
  return made + "Plugin";
}

std::string templates_folder() {
  const fs::path folder =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share" / "drivetrain" / "templates";
  std::error_code unknown;
  if (!fs::is_directory(folder / kCommon, unknown))
    throw KitError(Exit::plugin, "the templates are not installed: there is no " + (folder / kCommon).string() +
                                     "\n   the program and its folder `share` belong together: install both again");
  return folder.string();
}

std::vector<std::string> kinds_of(const std::string& templates) {
  std::vector<std::string> kinds;
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(templates, unknown))
    if (entry.is_directory(unknown) && entry.path().filename() != kCommon)
      kinds.push_back(entry.path().filename().string());
  std::sort(kinds.begin(), kinds.end());
  return kinds;
}

std::map<std::string, std::string> files_of(const std::string& templates, const PluginName& plugin) {
  std::map<std::string, std::string> raw;  // those of the kind go before the common ones
  for (const std::string& from : {std::string(kCommon), plugin.kind}) {
    const fs::path folder = fs::path(templates) / from;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) raw[entry.path().lexically_relative(folder).string()] = text_of(entry.path());
  }
  const auto found = raw.find(kAbout);
  const std::string about = found == raw.end() ? "" : found->second;
  raw.erase(kAbout);
  std::map<std::string, std::string> files;
  for (auto& [path, text] : raw) {
    replace_all(text, kAboutWord, about);
    files[filled_in(path, plugin)] = filled_in(text, plugin);
  }
  return files;
}

}  // namespace drivetrain::kit
