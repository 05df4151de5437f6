// Every reader with what it takes, with what once broke it (regressions/), and with damaged copies of both: the same
// ones each time. The short form of tools/fuzz, for any compiler.
//
//   fuzz_readers [--rounds N] [--seed N] [NAME...]
//
// An input that breaks a reader is written to fuzz-NAME.input in the current folder; `fuzz_readers --input FILE NAME`
// shows it again.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "mutate.h"
#include "scratch.h"
#include "target.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace drivetrain::fuzz {
namespace {

namespace fs = std::filesystem;

const Target* current_target = nullptr;
const std::string* current_input = nullptr;

void keep_input() {
  if (!current_input) return;
  const std::string file = std::string("fuzz-") + current_target->name + ".input";
  std::ofstream(file, std::ios::binary) << *current_input;
  std::fprintf(stderr, "fuzz: the input is in %s (%zu bytes)\n", file.c_str(), current_input->size());
  current_input = nullptr;
}

void keep_input_and_die(int number) {
  keep_input();
  signal(number, SIG_DFL);
  raise(number);
}

void watch_for_the_end() {
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(keep_input);
  for (const int number : {SIGABRT, SIGTERM}) signal(number, keep_input_and_die);
  if (!__sanitizer_set_death_callback)
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, keep_input_and_die);
}

bool try_input(const Target& target, const std::string& input) {
  current_target = &target, current_input = &input;
  const bool taken = takes(target, input);
  current_input = nullptr;
  return taken;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) std::perror(path.c_str()), std::exit(2);
  return {std::istreambuf_iterator<char>(in), {}};
}

Inputs regressions(const Target& target) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry :
       fs::directory_iterator(source_path(std::string("tests/fuzz/regressions/") + target.name), none))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  Inputs inputs;
  for (const fs::path& file : files) inputs.push_back(bytes_of(file));
  return inputs;
}

// Returns whether all seeds are taken: else the mutations would damage what is damaged already.
bool fuzz(const Target& target, size_t rounds, uint64_t seed) {
  Inputs inputs = target.seeds();
  bool right = !inputs.empty();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (try_input(target, inputs[i])) continue;
    std::fprintf(stderr, "fuzz: seed %zu of %s is refused\n", i, target.name);
    right = false;
  }
  const Inputs once = regressions(target);
  for (const std::string& input : once) try_input(target, input);
  inputs.insert(inputs.end(), once.begin(), once.end());
  Mutator mutator(inputs, target.words, seed);
  size_t taken = 0;
  for (size_t i = 0; i < rounds; ++i) taken += try_input(target, mutator.next());
  std::printf("%-14s %6zu seeds %8zu damaged copies, %zu of them taken (%s)\n", target.name, inputs.size(), rounds,
              taken, target.reads);
  std::fflush(stdout);
  return right;
}

int usage(const char* why) {
  std::fprintf(stderr, "fuzz_readers: %s\nusage: fuzz_readers [--rounds N] [--seed N] [--input FILE] [NAME...]\n", why);
  for (const Target& target : targets()) std::fprintf(stderr, "  %-14s %s\n", target.name, target.reads);
  return 2;
}

int run(const std::vector<std::string>& words) {
  size_t rounds = 2000;
  uint64_t seed = 1;
  std::string input;
  std::vector<const Target*> chosen;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool more = i + 1 < words.size();
    if (words[i] == "--rounds" && more)
      rounds = std::strtoull(words[++i].c_str(), nullptr, 10);
    else if (words[i] == "--seed" && more)
      seed = std::strtoull(words[++i].c_str(), nullptr, 10);
    else if (words[i] == "--input" && more)
      input = words[++i];
    else if (const Target* target = find_target(words[i]))
      chosen.push_back(target);
    else
      return usage(("there is no " + words[i]).c_str());
  }
  if (chosen.empty())
    for (const Target& target : targets()) chosen.push_back(&target);
  bool right = true;
  for (const Target* target : chosen) {
    if (!input.empty())
      std::printf("%s: %s\n", target->name, try_input(*target, bytes_of(input)) ? "taken" : "refused");
    else
      right = fuzz(*target, rounds / static_cast<size_t>(target->share), seed) && right;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace drivetrain::fuzz

int main(int argc, char** argv) {
  drivetrain::fuzz::watch_for_the_end();
  return drivetrain::fuzz::run({argv + 1, argv + argc});
}
