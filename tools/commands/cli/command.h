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
  bool repeats = false;            // every value counts; otherwise the last one does
  bool required = false;           // unless the option that it excludes is given
  bool alone = false;              // of a benchmark, not under `launch --bench`
};

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
  bool under_launch = false;      // a benchmark that `launch --bench NAME` starts on ranks
  std::string_view not_yet = {};  // not in this version: what to do instead, or "-"
};

}  // namespace drivetrain::cli
