#include "cli/help.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "cli/commands.h"
#include "cli/examples.h"

namespace drivetrain::cli {
namespace {

constexpr size_t kWidth = 100;

constexpr const char* kPurpose = "drivetrain trains language models from a JSON file.";
// Lines of at most kWidth, broken at blanks. The first stands behind `used` columns, all others begin with `indent`.
std::string wrapped(const std::string& text, const std::string& indent, size_t used = 0) {
  std::string out, line;
  for (const std::string& word : split(text, ' ')) {
    if (!line.empty() && used + line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = indent + word;
      used = 0;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return out + line;
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}

std::string row(const std::string& left, size_t width, const std::string& right) {
  const std::string indent(width + 2, ' ');
  // A name that leaves no room has a line of its own.
  const std::string begin = left.size() < width ? "  " + padded(left, width) : "  " + left + "\n" + indent;
  return begin + wrapped(right, indent, indent.size()) + "\n";
}

std::string value_text(const Option& option) {
  return std::string(option.takes == Takes::one_of ? option.choices : option.value);
}

std::string names_text(const Option& option) {
  std::string text(option.name);
  if (!option.alias.empty()) text += ", " + std::string(option.alias);
  return value_text(option).empty() ? text : text + " " + value_text(option);
}

std::string usage_text(const Option& option) {
  std::string text(option.name);
  if (!value_text(option).empty()) text += " " + value_text(option);
  if (!option.required) text = "[" + text + "]";
  return option.repeats ? text + "..." : text;
}

std::string help_text(const Option& option) {
  std::string text(option.help);
  if (option.takes == Takes::some_of) text += "; of " + join(split(option.choices, '|'));
  if (!option.otherwise.empty()) text += " (default " + std::string(option.otherwise) + ")";
  return text;
}

std::string list_text(const std::vector<std::pair<std::string, std::string>>& rows, size_t most = 34) {
  size_t width = 0;
  for (const auto& [left, right] : rows) width = std::max(width, left.size());
  std::string text;
  for (const auto& [left, right] : rows) text += row(left, std::min(width, most) + 2, right);
  return text;
}

std::vector<std::pair<std::string, std::string>> option_rows(const std::vector<Option>& options) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Option& option : options) rows.emplace_back(names_text(option), help_text(option));
  return rows;
}

using Rows = std::vector<std::pair<std::string, std::string>>;

// Groups share the width of their first column.
std::string commands_text(std::span<const Command> others) {
  constexpr size_t kNames = 13;
  std::string text;
  const auto add = [&](const std::string& title, const Rows& rows) {
    text += title + "\n";
    for (const auto& [name, summary] : rows) text += row(name, std::max(kNames, name.size() + 1), summary);
    text += "\n";
  };
  for (const Group& group : kGroups) {
    Rows rows;
    for (const std::string& name : split(group.commands, ' ')) rows.emplace_back(name, find_command(name)->summary);
    add(std::string(group.title) + ": " + example_of(*find_command(group.example)), rows);
  }
  Rows rows;
  for (const Command& command : others) rows.emplace_back(command.name, command.summary);
  if (!rows.empty()) add("of somebody else", rows);
  return text;
}

// What `launch` takes beside its own: the options of train, and of each benchmark.
std::string lent_options() {
  std::string text = "\noptions of the training run:\n" + list_text(option_rows(options_of(*find_command("train"))));
  for (const Command& bench : kCommands) {
    if (!bench.under_launch) continue;
    std::vector<std::string> names;
    for (const Option& option : bench.options)
      if (!option.alone) names.emplace_back(option.name);
    text += "\n" +
            wrapped("with --bench " + std::string(verb(bench)) + ", the options of `drivetrain " +
                        std::string(bench.name) + "`: " + join(names, " "),
                    "  ") +
            "\n";
  }
  return text;
}

}  // namespace

std::string choice_text(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i)
    text += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + choices[i];
  return text;
}

std::string environment_text() {
  return "DRIVETRAIN_TORCH (folder of LibTorch), DRIVETRAIN_PLUGIN_PATH, DRIVETRAIN_LOG (debug|info|warning|error), "
         "DRIVETRAIN_RUN_TOKEN (secret of a run whose ranks share no home folder), NO_COLOR.";
}

std::string exit_codes_text() {
  return "0 done, 1 our own bug, 2 usage or configuration, 3 plugin, 4 out of memory, 5 communication, 6 checkpoint, "
         "7 numeric failure, 8 input or output, 75 stopped with a checkpoint, 128+n signal n.";
}

std::string usage_line(const Command& command) {
  std::string text = "usage: drivetrain " + std::string(command.name);
  std::vector<std::string> verbs;
  for (const Command* one : verbs_of(command)) verbs.emplace_back(verb(*one));
  if (!verbs.empty()) return text + " " + join(verbs, "|") + " [OPTION]...";
  if (!command.words.empty()) text += " " + std::string(command.words);
  std::vector<Option> options(command.options.begin(), command.options.end());
  if (command.name == "launch") {
    const auto& more = find_command("train")->options;
    options.insert(options.end(), more.begin(), more.end());
  }
  for (const Option& option : options) text += " " + usage_text(option);
  return wrapped(text, "         ");
}

std::string program_help(std::span<const Command> others) {
  return std::string(kPurpose) + "\n\nusage: drivetrain COMMAND [OPTION]...\n\n" + commands_text(others) +
         "  drivetrain help COMMAND    options of one command, and an example; also drivetrain COMMAND --help\n"
         "  drivetrain --version       the releases of drivetrain and LibTorch\n\n" +
         wrapped("Environment: " + environment_text(), "  ") + "\n" +
         wrapped("Exit codes: " + exit_codes_text(), "  ") + "\n";
}

std::string command_help(const Command& command) {
  std::string text = usage_line(command) + "\n" + std::string(command.summary) + "\n";
  if (const auto verbs = verbs_of(command); !verbs.empty()) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const Command* one : verbs) rows.emplace_back(verb(*one), one->summary);
    const std::string name(command.name);
    return text + "\n" + list_text(rows) + "\n  drivetrain help " + name + " " + rows.front().first +
           "    options of `" + name + " " + rows.front().first + "`\n";
  }
  // A command of somebody else is not in the table.
  if (find_command(command.name)) text += "example: " + example_of(command) + "\n";
  if (!command.options.empty()) text += "\n" + list_text(option_rows({command.options.begin(), command.options.end()}));
  return command.name == "launch" ? text + lent_options() : text;
}

}  // namespace drivetrain::cli
