// The templates of `drivetrain new-plugin`: one folder per kind, beside one with the files that all kinds share. They
// are data: a new kind is a new folder, and nothing here knows one. Main thread.
//
//   share/drivetrain/templates/common/...        README.md, CI and the like
//   share/drivetrain/templates/attention/...     the source, its CMakeLists.txt, a config that trains with it
//
// In names and texts of files these words stand for others:
//   new_plugin          the plugin's name                NewPlugin      the class: MyPlugin for my
//   plugin_kind         its kind                         sdk_version    0.1, for find_package
//   about_the_plugin    (a line) the text of the kind's file about.md, which is no file of its own
#pragma once

#include <map>
#include <string>
#include <vector>

namespace drivetrain::kit {

struct PluginName {
  std::string kind, name;
  std::string class_name() const;  // "SlidingWindowPlugin" for sliding_window
};

// The folder beside this program: <prefix>/share/drivetrain/templates. KitError (3) if it is not there.
std::string templates_folder();
// Names of the kinds in that folder, sorted.
std::vector<std::string> kinds_of(const std::string& templates);
// All files of a new plugin by their path in its folder. KitError (8) if a file cannot be read.
std::map<std::string, std::string> files_of(const std::string& templates, const PluginName& plugin);

}  // namespace drivetrain::kit
