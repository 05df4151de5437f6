// What is fuzzed: a reader of files that strangers write, with inputs that it takes and that damaged ones are made of.
//
// A reader may refuse an input with an Error that is the file's fault. Everything else is a failure: another exception,
// an Error that says it is our own bug, a crash, a report of a sanitizer, a broken promise (FUZZ_CHECK).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain::fuzz {

using Inputs = std::vector<std::string>;

struct Target {
  const char* name;
  const char* reads;                       // one phrase
  void (*read)(const std::string& input);  // throws Error to refuse it
  Inputs (*seeds)();                       // which the reader takes
  std::vector<std::string> words;          // that inputs of this form are made of
  // The file that an Error has to name; empty: the reader does not know it.
  std::string place = {};
  int share = 1;  // of all rounds; slow readers get less
};

const std::vector<Target>& targets();
const Target* find_target(std::string_view name);

// Whether the reader takes the input. Ends the process, with a message on stderr, if it does neither that nor refuse.
bool takes(const Target& target, const std::string& input);

[[noreturn]] void broken(const char* promise, const char* file, int line);
#define FUZZ_CHECK(PROMISE) \
  (static_cast<bool>(PROMISE) ? void() : ::drivetrain::fuzz::broken(#PROMISE, __FILE__, __LINE__))

}  // namespace drivetrain::fuzz
