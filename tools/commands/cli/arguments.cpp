#include "cli/arguments.h"

#include <algorithm>
#include <stdexcept>

#include "cli/commands.h"

namespace drivetrain::cli {
namespace {

// A word that cannot be what its row says got past the parser, or a default of the table is wrong.
std::logic_error wrong_row(const Command& command, std::string_view option, const char* problem) {
  return std::logic_error("the table of commands: " + std::string(command.name) + " " + std::string(option) + " " +
                          problem);
}

}  // namespace

// `launch` has rows of other commands; whoever reads these knows which command they are for.
const Option* Arguments::find(std::string_view name) const {
  if (const Option* own = find_option(*command_, name)) return own;
  if (command_->name == "launch")
    for (const Command& other : kCommands)
      if (const Option* option = other.under_launch || other.name == "train" ? find_option(other, name) : nullptr)
        return option;
  return nullptr;
}

const Option& Arguments::row(OptionName option) const {
  if (const Option* found = find(option.text())) return *found;
  throw wrong_row(*command_, option.text(), "is read and is not there");
}

const std::string* Arguments::value(OptionName option) const {
  row(option);
  for (const Given& given : given_)
    if (given.name == option.text()) return &given.value;
  return nullptr;
}

bool Arguments::has(OptionName option) const { return value(option) != nullptr; }

std::vector<std::string> Arguments::all(OptionName option) const {
  row(option);
  std::vector<std::string> values;
  for (const Given& given : given_)
    if (given.name == option.text()) values.push_back(given.value);
  return values;
}

std::string Arguments::text(OptionName option) const {
  if (const std::string* given = value(option)) return *given;
  return std::string(row(option).otherwise);
}

int64_t Arguments::whole(OptionName option) const {
  const auto number = read_whole(text(option));
  if (!number) throw wrong_row(*command_, option.text(), "has no whole number and no default");
  return *number;
}

double Arguments::real(OptionName option) const {
  const auto number = read_real(text(option));
  if (!number) throw wrong_row(*command_, option.text(), "has no number and no default");
  return *number;
}

std::string Arguments::text(OptionName option, const std::string& otherwise) const {
  if (!row(option).otherwise.empty()) throw wrong_row(*command_, option.text(), "has two defaults");
  return has(option) ? text(option) : otherwise;
}

int64_t Arguments::whole(OptionName option, int64_t otherwise) const {
  if (!row(option).otherwise.empty()) throw wrong_row(*command_, option.text(), "has two defaults");
  return has(option) ? whole(option) : otherwise;
}

std::vector<std::string> Arguments::as_words(std::initializer_list<OptionName> left_out) const {
  std::vector<std::string> words;
  // A file that is called like an option has a path that is not.
  for (const std::string& word : plain_) words.push_back(word.starts_with('-') && word != "-" ? "./" + word : word);
  for (const Given& given : given_) {
    const auto same = [&](OptionName option) { return option.text() == given.name; };
    if (std::any_of(left_out.begin(), left_out.end(), same)) continue;
    words.push_back(given.name);
    if (const Option* option = find(given.name); !option || option->takes != Takes::nothing)
      words.push_back(given.value);
  }
  return words;
}

}  // namespace drivetrain::cli
