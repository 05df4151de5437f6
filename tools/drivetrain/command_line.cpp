#include "drivetrain/command_line.h"

#include <algorithm>

#include "config/printable.h"
#include "config/suggest.h"

namespace drivetrain::program {
namespace {

std::string same_spelling(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& n) { return same_spelling(n) == same_spelling(name); });
}

template <class Rule>
const Rule* find_rule(const std::vector<Rule>& rules, const std::string& name) {
  for (const Rule& rule : rules)
    if (is_one_of(name, rule.names)) return &rule;
  return nullptr;
}

UsageError usage_error(const CommandRule& rule, const std::string& message) {
  return UsageError(rule.name + ": " + message + "\n" + usage_line(rule));
}

UsageError unknown_option(const CommandRule& rule, const std::string& name) {
  std::vector<std::string> known;
  for (const OptionRule& option : rule.options) known.insert(known.end(), option.names.begin(), option.names.end());
  return usage_error(rule, "there is no option " + shown(name) + suggestion(name, known));
}

// One option at words[i]; leaves i on its last word.
void read_option(const CommandRule& rule, const std::vector<std::string>& words, size_t& i, Arguments& out) {
  std::string name = words[i], value;
  const size_t equals = name.starts_with("--") ? name.find('=') : std::string::npos;
  if (equals != std::string::npos) {
    value = name.substr(equals + 1);
    name.resize(equals);
  }
  if (const RefusedOption* refused = find_rule(rule.refused, name))
    throw usage_error(rule, name + ": " + refused->reason);
  const OptionRule* option = find_rule(rule.options, name);
  if (!option) throw unknown_option(rule, name);
  if (option->value.empty() && equals != std::string::npos)
    throw usage_error(rule, name + " takes no value, got \"" + value + "\"");
  if (!option->value.empty() && equals == std::string::npos) {
    if (i + 1 >= words.size()) throw usage_error(rule, name + " wants " + option->value + " after it");
    value = words[++i];
  }
  out.options.push_back({option->names.front(), option->value.empty() ? std::nullopt : std::optional(value)});
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

void check_counts(const CommandRule& rule, const Arguments& arguments) {
  if (arguments.plain.size() < rule.least)
    throw usage_error(rule, "something is missing after \"drivetrain " + rule.name + "\"");
  if (arguments.plain.size() > rule.most)
    throw usage_error(rule, "\"" + arguments.plain[rule.most] + "\" was not expected");
  for (const OptionRule& option : rule.options)
    if (option.required && !arguments.has(option.names.front()))
      throw usage_error(rule, option.names.front() + " " + option.value + " is missing");
}

}  // namespace

bool Arguments::has(const std::string& name) const {
  return std::any_of(options.begin(), options.end(), [&](const auto& option) { return option.name == name; });
}

std::vector<std::string> Arguments::words() const {
  std::vector<std::string> list;
  // A file that is called like an option has a path that is not.
  for (const std::string& word : plain) list.push_back(is_option(word) ? "./" + word : word);
  for (const Option& option : options) {
    list.push_back(option.name);
    if (option.value) list.push_back(*option.value);
  }
  return list;
}

Arguments read_arguments(const CommandRule& rule, const std::vector<std::string>& words) {
  Arguments out;
  const auto end_of_options = std::find(words.begin(), words.end(), "--");
  out.help =
      std::any_of(words.begin(), end_of_options, [](const std::string& w) { return w == "--help" || w == "-h"; });
  if (out.help) return out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      out.plain.insert(out.plain.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      break;
    }
    if (is_option(words[i]))
      read_option(rule, words, i, out);
    else
      out.plain.push_back(words[i]);
  }
  check_counts(rule, out);
  return out;
}

std::string usage_line(const CommandRule& rule) {
  return "usage: drivetrain " + rule.name + (rule.arguments.empty() ? "" : " " + rule.arguments);
}

}  // namespace drivetrain::program
