#include "cli/read_words.h"

#include <algorithm>
#include <map>

#include <CLI/CLI.hpp>

namespace drivetrain::cli {
namespace {

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

std::string name_of(const std::string& word) { return word.starts_with("--") ? word.substr(0, word.find('=')) : word; }

// CLI11 takes "--prompt=" for an option whose value is the next word, and "++" for the end of a subcommand. With a mark
// behind them, which nobody types, they are words like others.
constexpr char kMark = '\x01';

std::string marked(const std::string& word) {
  const bool empty_value = word.starts_with("--") && word.find('=') == word.size() - 1;
  return empty_value || word == "++" ? word + kMark : word;
}
std::string unmarked(std::string word) {
  if (!word.empty() && word.back() == kMark) word.pop_back();
  return word;
}

// "--num_gpus,--num-gpus": CLI11 takes '-' and '_' for different letters.
std::string spellings(std::string_view name) {
  std::string dashes(name), lines(name);
  std::replace(dashes.begin() + 2, dashes.end(), '_', '-');
  std::replace(lines.begin() + 2, lines.end(), '-', '_');
  return dashes == lines ? dashes : dashes + "," + lines;
}

std::string all_names(const Option& option) {
  return spellings(option.name) + (option.alias.empty() ? "" : "," + spellings(option.alias));
}

// A CLI11 parser of the options, and which of its options is which row.
class Parser {
 public:
  explicit Parser(const std::vector<Option>& options) {
    app_.set_help_flag();
    app_.allow_extras();
    for (const Option& option : options) {
      CLI::Option* const made =
          option.takes == Takes::nothing ? app_.add_flag(all_names(option)) : app_.add_option(all_names(option));
      made->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      rows_[made] = &option;
    }
  }

  ReadWords read(const std::vector<std::string>& words) {
    ReadWords out;
    std::vector<std::string> reversed;
    for (auto word = words.rbegin(); word != words.rend(); ++word) reversed.push_back(marked(*word));
    try {
      app_.parse(std::move(reversed));
    } catch (const CLI::ArgumentMismatch&) {  // no option takes more than one value, so that only one can be missing
      out.missing_value = words.back();
    }
    add_options(out);
    add_rest(out);
    return out;
  }

 private:
  void add_options(ReadWords& out) const {
    std::map<const CLI::Option*, size_t> seen;
    for (const CLI::Option* option : app_.parse_order()) {
      const Option& row = *rows_.at(option);
      const std::string value = unmarked(option->results().at(seen[option]++));
      const bool flag = row.takes == Takes::nothing;
      if (flag && value != "true" && out.value_too_many.empty())
        out.value_too_many = std::string(row.name) + "=" + value;
      out.given.push_back({std::string(row.name), flag ? "" : value});
    }
  }

  // Of what CLI11 leaves, the first "--" ends the options.
  void add_rest(ReadWords& out) const {
    bool only_plain = false;
    for (const std::string& left : app_.remaining()) {
      const std::string word = unmarked(left);
      if (!only_plain && word == "--")
        only_plain = true;
      else if (!only_plain && is_option(word))
        out.unknown.push_back(name_of(word));
      else
        out.plain.push_back(word);
    }
  }

  CLI::App app_;
  std::map<const CLI::Option*, const Option*> rows_;
};

}  // namespace

ReadWords read_words(const std::vector<Option>& options, const std::vector<std::string>& words) {
  return Parser(options).read(words);
}

}  // namespace drivetrain::cli
