// What a command of the program and an option of a command are: the rows of cli/command_table.h. Only literals, so that
// the program reads them without LibTorch and the compiler can check names against them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace drivetrain::cli {

// What an option or a command takes. It decides what is accepted, and what a shell completes.
enum class Takes {
  nothing,  // a flag, or a command without words
  text,     // anything
  whole,    // a whole number from `least` to `most`
  real,     // a number from `least`
  one_of,   // one of `choices`
  some_of,  // names of `choices`, separated by commas
  file,
  folder,
  command,  // the name of a command
};

struct Option {
  std::string_view name;        // "--tokens"; code asks for the option by this name
  std::string_view value = {};  // what help calls its value ("N"); empty for a flag
  std::string_view help = {};   // one line
  Takes takes = Takes::nothing;
  std::string_view choices = {};    // "cpu|cuda"; empty: the value is free
  std::string_view otherwise = {};  // the value where none is given; empty: there is none, or the command computes it
  std::string_view counted = {};    // "ranks": what a whole number counts, for messages
  int64_t least = 0, most = std::numeric_limits<int64_t>::max();
  std::string_view alias = {};     // a second name
  std::string_view needs = {};     // an option that has to be given too
  std::string_view excludes = {};  // an option that may not be given too
  bool repeats = false;            // every value counts; otherwise a second, other value is refused
  bool required = false;           // unless the option that it excludes is given
  bool alone = false;              // of a benchmark, not under `launch --bench`

  // The row with one thing more.
  constexpr Option by_default(std::string_view value_then) const { return with(&Option::otherwise, value_then); }
  constexpr Option counts(std::string_view what) const { return with(&Option::counted, what); }
  constexpr Option also(std::string_view second_name) const { return with(&Option::alias, second_name); }
  constexpr Option only_with(std::string_view option) const { return with(&Option::needs, option); }
  constexpr Option not_with(std::string_view option) const { return with(&Option::excludes, option); }
  constexpr Option many() const { return with(&Option::repeats, true); }
  constexpr Option must() const { return with(&Option::required, true); }
  constexpr Option not_under_launch() const { return with(&Option::alone, true); }
  template <class Field, class Content>
  constexpr Option with(Field Option::*field, const Content& content) const {
    Option row = *this;
    row.*field = content;
    return row;
  }
};

constexpr Option flag(std::string_view name, std::string_view help) { return {.name = name, .help = help}; }
constexpr Option taking(Takes takes, std::string_view name, std::string_view value, std::string_view help) {
  return {.name = name, .value = value, .help = help, .takes = takes};
}
constexpr Option text(std::string_view name, std::string_view value, std::string_view help) {
  return taking(Takes::text, name, value, help);
}
constexpr Option real(std::string_view name, std::string_view value, std::string_view help) {
  return taking(Takes::real, name, value, help);
}
constexpr Option file(std::string_view name, std::string_view value, std::string_view help) {
  return taking(Takes::file, name, value, help);
}
constexpr Option folder(std::string_view name, std::string_view value, std::string_view help) {
  return taking(Takes::folder, name, value, help);
}
constexpr Option whole(std::string_view name, std::string_view value, std::string_view help, int64_t least = 0,
                       int64_t most = std::numeric_limits<int64_t>::max()) {
  return taking(Takes::whole, name, value, help).with(&Option::least, least).with(&Option::most, most);
}
constexpr Option one_of(std::string_view name, std::string_view value, std::string_view choices,
                        std::string_view help) {
  return taking(Takes::one_of, name, value, help).with(&Option::choices, choices);
}
constexpr Option some_of(std::string_view name, std::string_view value, std::string_view choices,
                         std::string_view help) {
  return taking(Takes::some_of, name, value, help).with(&Option::choices, choices);
}

// Options of other launchers or of later versions, and what to do instead.
struct RefusedOptions {
  std::string_view names;  // separated by blanks
  std::string_view reason;
};

struct Command {
  std::string_view name;          // "train"; a command with a verb has both, "bench step"
  std::string_view summary = {};  // one line for help
  std::string_view words = {};    // what stands beside the options, as the usage line shows it
  Takes takes = Takes::nothing;   // those words
  std::string_view choices = {};  // of those words
  size_t least = 0, most = 0;     // how many of those words
  std::span<const Option> options = {};
  std::span<const RefusedOptions> refused = {};
  bool under_launch = false;  // a benchmark that `launch --bench NAME` starts on ranks

  // The row with one thing more.
  constexpr Command with_words(std::string_view shown, Takes kind, size_t fewest, size_t most_of_them) const {
    Command row = *this;
    row.words = shown, row.takes = kind, row.least = fewest, row.most = most_of_them;
    return row;
  }
  constexpr Command with_choices(std::string_view of_words) const {
    Command row = *this;
    row.choices = of_words;
    return row;
  }
  constexpr Command without(std::span<const RefusedOptions> others) const {
    Command row = *this;
    row.refused = others;
    return row;
  }
};

constexpr Command command(std::string_view name, std::string_view summary, std::span<const Option> options = {}) {
  return {.name = name, .summary = summary, .options = options};
}

}  // namespace drivetrain::cli
