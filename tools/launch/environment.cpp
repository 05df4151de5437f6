// What ranks on other hosts find in their environment beside what their launcher tells them.
#include "launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/printable.h"
#include "base/rank_variables.h"
#include "cli/usage_error.h"
#include "launch/starter_command.h"

namespace drivetrain::program {
namespace {

// Settings of the libraries that a run uses. What is about one host (CUDA_VISIBLE_DEVICES, PATH) stays there.
constexpr const char* kTakenAlong[] = {"DRIVETRAIN_", "NCCL_", "GLOO_",  "UCX_",    "MKL_",
                                       "OMP_",        "KMP_",  "TORCH_", "PYTORCH_"};
constexpr const char* kGivenByLaunch = "launch itself gives that to each rank";

bool is_variable_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') && std::all_of(name.begin(), name.end(), fits);
}

std::string name_of_entry(const std::string& entry) { return entry.substr(0, entry.find('=')); }

bool is_of_one_run(const std::string& name) {
  const std::vector<const char*> given = RankStart::names();
  return name == kTaskVariable || std::find(given.begin(), given.end(), name) != given.end();
}

// `KEY` with its value in this environment; as it is where it has none.
std::string with_value_here(const std::string& entry) {
  const char* const value = entry.find('=') == std::string::npos ? std::getenv(entry.c_str()) : nullptr;
  return value ? entry + "=" + value : entry;
}

std::vector<std::string> entries_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  return parse_environment_file(text.str(), path);
}

}  // namespace

std::vector<std::string> parse_environment_file(const std::string& text, const std::string& path) {
  std::vector<std::string> list;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line[begin] == '#') continue;
    line.erase(0, begin);
    const std::string where = "launch: " + path + ":" + std::to_string(number) + ": ";
    const std::string name = name_of_entry(line);
    if (line.find('=') == std::string::npos || !is_variable_name(name))
      throw UsageError(where + "wanted NAME=VALUE, got \"" + shown(line) + "\"");
    if (line.find('\0') != std::string::npos)
      throw UsageError(where + "the value of " + name + " has a zero byte, which no variable can hold");
    if (is_of_one_run(name)) throw UsageError(where + name + ": " + kGivenByLaunch + "; leave the line out");
    list.push_back(line);
  }
  return list;
}

std::vector<std::string> environment_of_option(const std::vector<std::string>& given) {
  std::vector<std::string> list;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string &entry = given[i], name = name_of_entry(entry);
    if (!is_variable_name(name)) throw UsageError("launch: --env wants KEY or KEY=VALUE, got \"" + shown(entry) + "\"");
    if (is_of_one_run(name)) throw UsageError("launch: --env " + name + ": " + kGivenByLaunch);
    list.push_back(with_value_here(entry));
    for (size_t earlier = 0; earlier < i; ++earlier)
      if (name_of_entry(given[earlier]) == name && list[earlier] != list[i])
        throw UsageError("launch: --env " + name + " is given twice, as \"" + shown(given[earlier]) + "\" and \"" +
                         shown(entry) + "\", with two values: leave out one of them");
  }
  for (const std::string& entry : list)
    if (const std::string name = name_of_entry(entry); name == entry)
      throw UsageError("launch: --env " + name + ": the variable is not set here; set it, or give " + name + "=VALUE");
  return list;
}

std::vector<std::string> environment_taken_along() {
  std::vector<std::string> list;
  for (char** one = environ; *one; ++one) {
    const std::string entry(*one), name = name_of_entry(entry);
    const bool wanted = std::any_of(std::begin(kTakenAlong), std::end(kTakenAlong),
                                    [&](const char* begin) { return name.starts_with(begin); });
    if (wanted && !is_of_one_run(name)) list.push_back(entry);
  }
  std::sort(list.begin(), list.end());
  const char* const home = std::getenv("HOME");
  const char* const named = std::getenv("DS_ENV_FILE");
  for (const std::string& file :
       {std::string(named && *named ? named : ".deepspeed_env"), std::string(".drivetrain_env")})
    for (const std::string& folder : {std::string(home ? home : ""), std::string(".")})
      if (!folder.empty())
        for (const std::string& entry : entries_of_file(file.starts_with('/') ? file : folder + "/" + file))
          list.push_back(entry);
  return list;
}

}  // namespace drivetrain::program
