#include <drivetrain/toolkit/text.h>

#include "cli/commands.h"
#include "cli/completion.h"

namespace drivetrain::cli {
namespace {

std::string quoted(const std::string& text) { return "'" + text + "'"; }

// What completes a value: words, or <file> and <folder> for paths.
std::string candidates(Takes takes, std::string_view choices) {
  if (takes == Takes::file) return "<file>";
  if (takes == Takes::folder) return "<folder>";
  return join(split(choices, '|'), " ");
}

std::string names_of_commands(std::span<const Command> others) {
  std::vector<std::string> names;
  for (const Command* command : without_verbs(others)) names.emplace_back(command->name);
  return join(names, " ");
}

std::string words_of(const Command& command, std::span<const Command> others) {
  std::vector<std::string> verbs;
  for (const Command* one : verbs_of(command)) verbs.emplace_back(verb(*one));
  if (!verbs.empty()) return join(verbs, " ");
  return command.takes == Takes::command ? names_of_commands(others) : candidates(command.takes, command.choices);
}

// One branch of `case $command`: what may stand there, and which options are followed by a value.
std::string command_case(const Command& command, std::span<const Command> others) {
  std::vector<std::string> options{"--help"}, valued;
  for (const Option& option : options_of(command))
    for (const std::string_view name : {option.name, option.alias}) {
      if (name.empty()) continue;
      options.emplace_back(name);
      if (option.takes != Takes::nothing) valued.emplace_back(name);
    }
  const bool has_verbs = !verbs_of(command).empty();
  return "    " + quoted(std::string(command.name)) + ")\n      words=" + quoted(words_of(command, others)) +
         " most=" + std::to_string(has_verbs ? 1 : command.most) + "\n      options=" + quoted(join(options, " ")) +
         "\n      valued=" + quoted(" " + join(valued, " ") + " ") + "\n      ;;\n";
}

std::string value_cases(const Command& command) {
  std::string text;
  for (const Option& option : options_of(command))
    for (const std::string_view name : {option.name, option.alias})
      if (const std::string words = candidates(option.takes, option.choices); !name.empty() && !words.empty())
        text +=
            "    " + quoted(std::string(command.name) + " " + std::string(name)) + ") words=" + quoted(words) + " ;;\n";
  return text;
}

constexpr const char* kBegin =
    R"(# bash completion of drivetrain, made by `drivetrain completion bash` from its table of commands.
# To use it: source <(drivetrain completion bash)

# Sets words, most, options and valued for the command $1.
_drivetrain_command() {
  case $1 in
)";

constexpr const char* kMiddle = R"(  esac
}

# Sets words to what may follow an option; $1: command and option.
_drivetrain_value() {
  words=''
  case $1 in
)";

constexpr const char* kEnd = R"(  esac
}

# Fills COMPREPLY with those of $1 that $2 begins; in a list with commas the last part is completed.
_drivetrain_offer() {
  local part=$2 before=''
  case $1 in
    '<file>' | '<folder>')
      local kind=-f
      [ "$1" = '<folder>' ] && kind=-d
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(compgen "$kind" -- "$part")
      return
      ;;
  esac
  if [[ $part == *,* ]]; then
    before=${part%,*},
    part=${part##*,}
  fi
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$1" -- "$part")
}

_drivetrain() {
  local current=${COMP_WORDS[COMP_CWORD]} command='' waits='' word='' count=0 i
  local words='' most=0 options='' valued=''
  COMPREPLY=()
  _drivetrain_command ''
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then
      continue # bash splits --option=value at the sign
    elif [[ -n $waits ]]; then
      waits=''
    elif [[ $word == -* ]]; then
      [[ $valued == *" $word "* ]] && waits=$word
    elif [[ -z $command ]]; then
      command=$word count=0
      _drivetrain_command "$command"
    elif [[ $_drivetrain_verbs == *"|$command $word|"* ]]; then
      command="$command $word" count=0
      _drivetrain_command "$command"
    else
      count=$((count + 1))
    fi
  done
  [[ $current == = ]] && current=''
  if [[ -n $waits ]]; then
    _drivetrain_value "$command $waits"
    _drivetrain_offer "$words" "$current"
  elif [[ $current == -* || $count -ge $most ]]; then
    _drivetrain_offer "$options" "$current"
  else
    _drivetrain_offer "$words" "$current"
  fi
}
complete -F _drivetrain drivetrain
)";

}  // namespace

std::string bash_completion(std::span<const Command> others) {
  std::string text = kBegin, values, verbs = "|";
  text += "    '')\n      words=" + quoted(names_of_commands(others)) +
          " most=1\n      options='--help --version'\n      valued=''\n      ;;\n";
  for (const Command* command : all_commands(others)) {
    text += command_case(*command, others);
    values += value_cases(*command);
    if (!verb(*command).empty()) verbs += std::string(command->name) + "|";
  }
  return text + kMiddle + values + kEnd + "_drivetrain_verbs=" + quoted(verbs) + "\n";
}

}  // namespace drivetrain::cli
