// The grammar of command lines as data, so that help, usage errors and "not in this version" need no LibTorch. One
// reader serves every command: what `launch` hands on to `train` was read by the same rules. Pure functions.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace drivetrain::program {

// What was typed cannot be run: the message for stderr; the exit code is 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The system gives no memory to begin with; the exit code is 4.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct OptionRule {
  std::vector<std::string> names;  // the first is the one handed on; in names '-' and '_' are the same
  std::string value;               // "KEY=VALUE"; empty: a flag
  std::string help;
  bool required = false;
};

// An option of other launchers or of later versions, and what to do instead.
struct RefusedOption {
  std::vector<std::string> names;
  std::string reason;
};

struct CommandRule {
  std::string name, arguments, summary;  // arguments as the usage line shows them; empty summary: not in this version
  size_t least = 0, most = 0;            // arguments without options
  std::vector<OptionRule> options;
  std::vector<RefusedOption> refused;
};

struct Arguments {
  struct Option {
    std::string name;  // the first of its rule
    std::optional<std::string> value;
  };
  std::vector<std::string> plain;
  std::vector<Option> options;  // in the order typed
  bool help = false;            // --help or -h stood somewhere: nothing else was checked

  bool has(const std::string& name) const;
  // The same command line in one spelling: plain words, then first names with the value as the next word.
  std::vector<std::string> words() const;
};

// `words`: what follows the command. Options may stand anywhere, `--a v` or `--a=v`; after `--` all words are plain.
// Throws UsageError.
Arguments read_arguments(const CommandRule& rule, const std::vector<std::string>& words);

// "usage: drivetrain train CONFIG [--set KEY=VALUE]..."
std::string usage_line(const CommandRule& rule);

}  // namespace drivetrain::program
