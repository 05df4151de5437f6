// The runs of configs/: their files, and the number of ranks that each one's comment starts.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "support/train_threads.h"

namespace drivetrain::test {

inline std::string path_of(const std::string& name) { return DRIVETRAIN_SOURCE_DIR "/configs/" + name + ".json"; }

// Names of the runs in a folder of configs/, "" or "bench/", sorted: "3d", "bench/startup".
inline std::vector<std::string> configs_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(DRIVETRAIN_SOURCE_DIR "/configs/" + folder)) {
    const std::string name = file.path().stem();
    if (file.path().extension() == ".json" && name != "known_sections" && name != "deepspeed_keys" &&
        name != "foreign_files")
      names.push_back(folder + name);  // these are data of the runtime, no run
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline int64_t ranks_of(const std::string& name) {
  std::ifstream file(path_of(name));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::smatch match;
  return std::regex_search(text, match, std::regex("launch -n ([0-9]+) ")) ? std::stoll(match[1]) : 1;
}

inline bool has_plugins_for(const std::string& device) {
  const auto known = built_plugins().known();
  return device == "cpu" || std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.device == device; });
}

// For GoogleTest, which takes letters, digits and _.
inline std::string identifier(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '-' || c == '/'; }, '_');
  return name;
}

}  // namespace drivetrain::test
