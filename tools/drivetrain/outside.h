// Commands of somebody else: a program drivetrain-NAME, or a library drivetrain-NAME.so, in a folder of --plugin-path
// or of DRIVETRAIN_PLUGIN_PATH, or in libexec/drivetrain beside the program's folder. What help, completion and the
// manual page say of one stands in drivetrain-NAME.json beside it:
//
//   {"summary": "one line", "words": "[FOLDER]...", "options": [{"name": "--last", "value": "N", "help": "one line"}]}
//
// A program gets the words behind NAME, but for --plugin-path, and this program's path in DRIVETRAIN_PROGRAM. A library
// is opened after libdrivetrain.so, whose contract it may use, and has two functions with the linkage of C:
//
//   const char* drivetrain_release();                             // "0.1.0": the release that it was built for
//   int drivetrain_command(int count, const char* const* words);  // its exit code
//
// Main thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace drivetrain::program {

class OutsideCommands {
 public:
  // Looks through the folders of `plugin_paths`, of the environment and of the installation. Nothing of what lies there
  // is run or opened.
  explicit OutsideCommands(const std::vector<std::string>& plugin_paths);
  ~OutsideCommands();

  std::span<const cli::Command> rows() const;  // those that can be run, for help, completion and the manual page
  // "not used: PATH: why", a line each: names of the program's own commands, damaged descriptions, ...
  std::vector<std::string> problems() const;

  const cli::Command* find(const std::string& name) const;  // null: none can be run by that name
  // Runs it; returns its exit code, 8 where it wrote to a closed pipe, 128 + N where signal N ended it. Throws
  // UsageError if there is none, several are called so, or it cannot be started; a library of another release is
  // refused.
  int run(const std::string& name, const std::vector<std::string>& words) const;
  bool has(const std::string& name) const;  // also if it cannot be run

 private:
  struct One;
  static void describe(One& one);  // by the file beside it
  static void refuse_same_names(const std::vector<std::unique_ptr<One>>& all);
  std::vector<std::unique_ptr<One>> all_;
  std::vector<cli::Command> rows_;
};

// The values of --plugin-path in front of a `--`, and the other words.
struct PathWords {
  std::vector<std::string> paths, others;
};
PathWords take_plugin_paths(const std::vector<std::string>& words);

}  // namespace drivetrain::program
