#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "cli/commands.h"
#include "cli/completion.h"

namespace drivetrain::cli {
namespace {

// Text inside single quotes of the shell, in which `special` ends a part for zsh.
std::string quoted(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) out += '\\';
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out;
}

// What completes a value: the end of a specification of `_arguments`.
std::string action(Takes takes, std::string_view choices) {
  const std::string words = join(split(choices, '|'), " ");
  switch (takes) {
    case Takes::file:
      return "_files";
    case Takes::folder:
      return "_files -/";
    case Takes::one_of:
      return "(" + words + ")";
    case Takes::some_of:
      return "_sequence compadd - " + words;
    default:
      return " ";  // nothing
  }
}

std::string option_spec(const Option& option) {
  std::string names(option.name), excluded;
  const bool flag = option.takes == Takes::nothing;
  const auto with_value = [&](std::string_view name) {
    return std::string(name) + (flag ? "" : name.starts_with("--") ? "=" : "+");
  };
  std::string rest = "'[" + quoted(std::string(option.help), "[]:") + "]";
  if (!flag) rest += ":" + quoted(std::string(option.value), ":") + ":" + action(option.takes, option.choices);
  rest += "'";
  if (option.repeats) return "'*'" + with_value(option.name) + rest;
  if (option.alias.empty()) return with_value(option.name) + rest;
  return "'(" + names + " " + std::string(option.alias) + ")'{" + with_value(option.name) + "," +
         with_value(option.alias) + "}" + rest;
}

std::string described(const std::vector<const Command*>& commands) {
  std::string text;
  for (const Command* one : commands) {
    const std::string_view name = verb(*one).empty() ? one->name : verb(*one);
    text += "      '" + std::string(name) + ":" + quoted(std::string(one->summary), ":") + "'\n";
  }
  return text;
}

std::string arguments_case(const Command& command) {
  std::string text =
      "    '" + std::string(command.name) + "')\n      _arguments '(- *)'{-h,--help}'[show the options]'";
  for (const Option& option : options_of(command)) text += " \\\n        " + option_spec(option);
  const std::string what =
      command.takes == Takes::command ? "_drivetrain_commands" : action(command.takes, command.choices);
  if (command.most > 0) text += " \\\n        '*:" + quoted(std::string(command.words), ":") + ":" + what + "'";
  return text + "\n      ;;\n";
}

std::string verb_case(const Command& command) {
  return "    " + std::string(command.name) + ")\n      if (( CURRENT == 2 )); then\n        list=(\n" +
         described(verbs_of(command)) +
         "        )\n        _describe -t verbs verb list\n        return\n      fi\n      command=\"$command "
         "$words[2]\"\n"
         "      shift words\n      (( CURRENT-- ))\n      ;;\n";
}

}  // namespace

std::string zsh_completion(std::span<const Command> others) {
  std::string text =
      "#compdef drivetrain\n"
      "# zsh completion of drivetrain, made by `drivetrain completion zsh` from its table of commands.\n"
      "# To use it: write it to a file _drivetrain in a folder of fpath, or source it after compinit.\n\n"
      "_drivetrain_commands() {\n  local -a list\n  list=(\n" +
      described(without_verbs(others)) +
      "  )\n  _describe -t commands command list\n}\n\n"
      "_drivetrain() {\n  local -a list\n  local command=$words[2]\n"
      "  if (( CURRENT == 2 )); then\n    _drivetrain_commands\n    return\n  fi\n"
      "  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  std::string commands;
  for (const Command* command : without_verbs(others)) {
    const auto verbs = verbs_of(*command);
    if (!verbs.empty()) text += verb_case(*command);
    if (verbs.empty()) commands += arguments_case(*command);
    for (const Command* one : verbs) commands += arguments_case(*one);
  }
  return text + "  esac\n  case $command in\n" + commands +
         "  esac\n}\n\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _drivetrain \"$@\"\nelse\n"
         "  compdef _drivetrain drivetrain\nfi\n";
}

}  // namespace drivetrain::cli
