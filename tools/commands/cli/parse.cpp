#include "cli/parse.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/read_words.h"

namespace drivetrain::cli {
namespace {

using Words = std::vector<std::string>;

std::string same_spelling(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Before anything is read by the table, because "-np" would be "-n" with the value "p".
void refuse_options_of_others(const Command& command, const Words& words) {
  for (const std::string& word : words) {
    if (word == "--") return;
    const std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word;
    for (const RefusedOptions& refused : refused_of(command))
      for (const std::string& other : split(refused.names, ' '))
        if (same_spelling(other) == same_spelling(name)) refuse(command, name + ": " + std::string(refused.reason));
  }
}

// `deepspeed`, `accelerate` and `torchrun` start somebody's script, and people write the line as they are used to.
void refuse_scripts(const Command& command, const Words& words) {
  if (command.name != "launch" && command.name != "train") return;
  // With '=' it is the value of a --set, which may name such a file as data.
  const auto script = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word[0] != '-' && word.ends_with(".py") && word.find('=') == std::string::npos;
  });
  if (script == words.end()) return;
  std::string file = "ds_config.json", ranks = "N";
  const auto take = [&](size_t i, const char* name, std::string& value) {
    const std::string option = same_spelling(words[i]), wanted = same_spelling(name);
    if (option.starts_with(wanted + "=")) value = words[i].substr(wanted.size() + 1);
    if (option == wanted && i + 1 < words.size() && words[i + 1][0] != '-') value = words[i + 1];
  };
  for (size_t i = 0; i < words.size(); ++i) {
    for (const char* name : {"--deepspeed", "--deepspeed_config"}) take(i, name, file);
    for (const char* name : {"-n", "--num_gpus", "--nproc_per_node"}) take(i, name, ranks);
  }
  refuse(command, shown(*script) + " is a script, and drivetrain starts ranks of its own: write a run.json with " +
                      "\"model\", \"dataset\" and \"train_steps\", and start it: drivetrain launch -n " + shown(ranks) +
                      " run.json --deepspeed " + shown(file));
}

// Which commands have an option that this one lacks, if these are few: "; `drivetrain bench step` has it".
std::string who_has(const std::string& name) {
  Words list;
  for (const Command& other : kCommands)
    if (find_option(other, name)) list.push_back("`drivetrain " + std::string(other.name) + "`");
  return list.empty() || list.size() > 3 ? "" : "; " + join(list) + (list.size() == 1 ? " has it" : " have it");
}

[[noreturn]] void refuse_unknown(const Command& command, const std::string& name) {
  Words known;
  for (const Option& option : options_of(command))
    for (const std::string_view one : {option.name, option.alias})
      if (!one.empty()) known.emplace_back(one);
  refuse(command, "there is no option " + shown(name) + who_has(name) + suggestion(name, known));
}

std::string range(const Option& option) {
  std::string text = option.counted.empty() ? "a whole number" : "a number of " + std::string(option.counted);
  if (option.takes == Takes::real) text = "a number";
  if (option.most == Option().most) return text + " of at least " + std::to_string(option.least);
  return text + " from " + std::to_string(option.least) + " to " + std::to_string(option.most);
}

void check_value(const Command& command, const Option& option, const std::string& value) {
  const auto refuse_value = [&](const std::string& wanted, const std::string& hint = "") {
    refuse(command, std::string(option.name) + " wants " + wanted + ", got \"" + shown(value) + "\"" + hint);
  };
  const Words choices = split(option.choices, '|');
  const auto is_choice = [&](const std::string& one) {
    return std::find(choices.begin(), choices.end(), one) != choices.end();
  };
  if (option.takes == Takes::whole) {
    const auto number = read_whole(value);
    if (!number || *number < option.least || *number > option.most) refuse_value(range(option));
  } else if (option.takes == Takes::real) {
    const auto number = read_real(value);
    if (!number || !(*number >= static_cast<double>(option.least))) refuse_value(range(option));
  } else if (option.takes == Takes::one_of) {
    if (!is_choice(value)) refuse_value(choice_text(choices), did_you_mean(value, choices));
  } else if (option.takes == Takes::some_of) {
    for (const std::string& one : split(value, ','))
      if (!is_choice(one)) refuse_value("some of " + join(choices), did_you_mean(one, choices));
  }
}

// Two values of an option that takes one: which of them was meant is not known.
void refuse_second_values(const Command& command, const std::vector<Option>& options, const ReadWords& read) {
  for (const Option& option : options) {
    const Arguments::Given* first = nullptr;
    for (const Arguments::Given& one : read.given) {
      if (option.repeats || one.name != option.name) continue;
      if (first && first->value != one.value)
        refuse(command, std::string(option.name) + " is given twice, as \"" + shown(first->value) + "\" and \"" +
                            shown(one.value) + "\", and takes one value: leave out one of them");
      first = &one;
    }
  }
}

void check_options(const Command& command, const std::vector<Option>& options, const ReadWords& read) {
  const auto given = [&](std::string_view name) {
    return std::any_of(read.given.begin(), read.given.end(), [&](const auto& one) { return one.name == name; });
  };
  for (const Arguments::Given& one : read.given)
    for (const Option& option : options)
      if (option.name == one.name) check_value(command, option, one.value);
  for (const Option& option : options) {
    const std::string name(option.name);
    if (option.required && !given(name) && !given(option.excludes))
      refuse(command, name + " " + std::string(option.value) + " is missing");
    if (!given(name)) continue;
    if (!option.excludes.empty() && given(option.excludes))
      refuse(command, std::string(option.excludes) + " and " + name + " exclude each other");
    // Of what `launch` hands on it depends on the benchmark what goes with what: launch_request says so.
    const bool handed_on = command.name == "launch" && !find_option(command, option.name);
    if (!option.needs.empty() && !given(option.needs) && !handed_on)
      refuse(command, name + " goes with " + std::string(option.needs));
  }
}

void check_words(const Command& command, const Words& plain) {
  if (plain.size() < command.least)
    refuse(command, "something is missing after \"drivetrain " + std::string(command.name) + "\"");
  if (plain.size() > command.most) refuse(command, "\"" + shown(plain[command.most]) + "\" was not expected");
  const Words choices = split(command.choices, '|');
  for (const std::string& word : plain)
    if (command.takes == Takes::one_of && std::find(choices.begin(), choices.end(), word) == choices.end())
      refuse(command, "wanted " + choice_text(choices) + ", got \"" + shown(word) + "\"" + did_you_mean(word, choices));
}

void check_read(const Command& command, const ReadWords& read) {
  if (!read.unknown.empty()) refuse_unknown(command, read.unknown.front());
  if (!read.missing_value.empty()) {
    std::string wanted = "a value";
    for (const Option& option : options_of(command))
      if (same_spelling(read.missing_value) == same_spelling(std::string(option.name)) ||
          same_spelling(read.missing_value) == same_spelling(std::string(option.alias)))
        wanted = option.value;
    refuse(command, read.missing_value + " wants " + wanted + " after it");
  }
  if (!read.value_too_many.empty()) {
    const size_t equals = read.value_too_many.find('=');
    refuse(command, read.value_too_many.substr(0, equals) + " takes no value, got \"" +
                        shown(read.value_too_many.substr(equals + 1)) + "\"");
  }
}

[[noreturn]] void refuse_unknown_verb(const Command& command, const std::string& word) {
  Words known;
  for (const Command* one : verbs_of(command)) known.emplace_back(verb(*one));
  throw UsageError(std::string(command.name) + " does not know \"" + shown(word) + "\"" + suggestion(word, known) +
                   "\n" + usage_line(command));
}

}  // namespace

void refuse(const Command& command, const std::string& message) {
  throw UsageError(std::string(command.name) + ": " + message + "\n" + usage_line(command));
}

const Command& command_of(const Words& words) {
  if (words.empty()) throw UsageError("what should it do? See `drivetrain --help`");
  const Command* const command = words[0].find(' ') == std::string::npos ? find_command(words[0]) : nullptr;
  if (!command) {
    Words known;
    for (const Command& one : kCommands)
      if (verb(one).empty()) known.emplace_back(one.name);
    throw UsageError("there is no command \"" + shown(words[0]) + "\"" + suggestion(words[0], known));
  }
  if (verbs_of(*command).empty()) return *command;
  const ReadWords read = read_words(options_of(*command), {words.begin() + 1, words.end()});
  for (const Command* one : verbs_of(*command))
    if (!read.plain.empty() && verb(*one) == read.plain.front()) return *one;
  check_read(*command, read);
  if (read.plain.empty())
    refuse(*command, "something is missing after \"drivetrain " + std::string(command->name) + "\"");
  refuse_unknown_verb(*command, read.plain.front());
}

bool asks_for_help(const Words& words) {
  const auto end_of_options = std::find(words.begin(), words.end(), "--");
  return std::any_of(words.begin(), end_of_options, [](const std::string& w) { return w == "--help" || w == "-h"; });
}

Arguments parse(const Words& words) {
  const Command& command = command_of(words);
  const Words rest(words.begin() + 1, words.end());
  refuse_scripts(command, rest);
  refuse_options_of_others(command, rest);
  ReadWords read = read_words(options_of(command), rest);
  check_read(command, read);
  refuse_second_values(command, options_of(command), read);
  if (!verb(command).empty()) read.plain.erase(read.plain.begin());
  check_words(command, read.plain);
  check_options(command, options_of(command), read);
  return Arguments(command, std::move(read.plain), std::move(read.given));
}

}  // namespace drivetrain::cli
