#include "cli/commands.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace drivetrain::cli {
namespace {

void add_each_once(std::vector<Option>& list, std::span<const Option> more, bool under_launch = false) {
  for (const Option& option : more) {
    const auto same = [&](const Option& other) { return other.name == option.name; };
    if (under_launch && option.alone) continue;
    if (std::none_of(list.begin(), list.end(), same)) list.push_back(option);
  }
}

}  // namespace

std::vector<const Command*> all_commands(std::span<const Command> others) {
  std::vector<const Command*> list;
  for (const Command& command : kCommands) list.push_back(&command);
  for (const Command& command : others) list.push_back(&command);
  return list;
}

std::vector<const Command*> without_verbs(std::span<const Command> others) {
  std::vector<const Command*> list = all_commands(others);
  std::erase_if(list, [](const Command* command) { return !verb(*command).empty(); });
  return list;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands)
    if (command.name == name) return &command;
  return nullptr;
}

std::string_view verb(const Command& command) {
  const size_t blank = command.name.find(' ');
  return blank == std::string_view::npos ? "" : command.name.substr(blank + 1);
}

std::vector<const Command*> verbs_of(const Command& command) {
  std::vector<const Command*> list;
  for (const Command& other : kCommands)
    if (!verb(other).empty() && other.name.substr(0, other.name.find(' ')) == command.name) list.push_back(&other);
  return list;
}

std::vector<Option> options_of(const Command& command) {
  std::vector<Option> list(command.options.begin(), command.options.end());
  for (const Command* one : verbs_of(command)) add_each_once(list, one->options);
  if (command.name != "launch") return list;
  add_each_once(list, find_command("train")->options);
  for (const Command& bench : kCommands)
    if (bench.under_launch) add_each_once(list, bench.options, true);
  return list;
}

std::vector<RefusedOptions> refused_of(const Command& command) {
  std::vector<RefusedOptions> list(command.refused.begin(), command.refused.end());
  for (const Command* one : verbs_of(command)) list.insert(list.end(), one->refused.begin(), one->refused.end());
  return list;
}

const Option* find_option(const Command& command, std::string_view name) {
  for (const Option& option : command.options)
    if (option.name == name) return &option;
  return nullptr;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<int64_t> read_whole(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0) return std::nullopt;
  return number;
}

std::optional<double> read_real(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return std::nullopt;
  return number;
}

}  // namespace drivetrain::cli
