// A command line that has been read: which command, its words and its options. The program reads a line once and hands
// this to the library. Code asks for options by name; a name that no command has does not compile, and one that this
// command does not have is a std::logic_error, given or not.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "cli/command_table.h"

namespace drivetrain::cli {

// The name of an option in the table.
class OptionName {
 public:
  template <size_t N>
  consteval OptionName(const char (&name)[N]) : name_(name, N - 1) {
    if (!any_command_has_option(name_)) throw "no command has this option: see cli/option_rows.h";
  }
  std::string_view text() const { return name_; }

 private:
  std::string_view name_;
};

class Arguments {
 public:
  struct Given {
    std::string name, value;  // the name in the table; a flag has no value
  };
  // `command` lives as long as the program: a row of the table.
  Arguments(const Command& command, std::vector<std::string> plain, std::vector<Given> given)
      : command_(&command), plain_(std::move(plain)), given_(std::move(given)) {}

  const Command& command() const { return *command_; }
  const std::vector<std::string>& plain() const { return plain_; }  // the words that are not options
  const std::vector<Given>& given() const { return given_; }        // in the order typed

  bool has(OptionName option) const;                      // it was given
  std::vector<std::string> all(OptionName option) const;  // every value given, in order
  std::string text(OptionName option) const;              // the value given, else the table's default
  int64_t whole(OptionName option) const;
  double real(OptionName option) const;
  // For a default that the command computes; the table has none.
  std::string text(OptionName option, const std::string& otherwise) const;
  int64_t whole(OptionName option, int64_t otherwise) const;

  // The same line for a process that is started with it, without the command's name and the options left out.
  std::vector<std::string> as_words(std::initializer_list<OptionName> left_out = {}) const;

 private:
  const Option* find(std::string_view name) const;
  const Option& row(OptionName option) const;
  const std::string* value(OptionName option) const;  // null: it was not given

  const Command* command_;
  std::vector<std::string> plain_;
  std::vector<Given> given_;
};

}  // namespace drivetrain::cli
