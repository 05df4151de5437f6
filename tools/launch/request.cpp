#include "launch/request.h"

#include <cstdlib>
#include <filesystem>

namespace drivetrain::program {
namespace {

constexpr long kMostRanks = 4096;

int number_of_ranks(const std::string& text) {
  char* end = nullptr;
  const long n = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end || n < 1 || n > kMostRanks)
    throw UsageError("launch: -n wants a number of ranks from 1 to " + std::to_string(kMostRanks) + ", got \"" + text +
                     "\"");
  return static_cast<int>(n);
}

// Whether ranks are to be timed. What only timing or only training knows is told here.
bool wants_bench(const Arguments& arguments) {
  const bool bench = arguments.has("--bench");
  for (const Arguments::Option& option : arguments.options) {
    if (option.name == "--bench" && *option.value != "step")
      throw UsageError("launch: --bench wants step, got \"" + *option.value + "\"; the other benchmarks have one process");
    if (bench && option.name == "--plan") throw UsageError("launch: --plan and --bench exclude each other");
    for (const char* name : {"--steps", "--warmup", "--json"})
      if (!bench && option.name == name) throw UsageError("launch: " + option.name + " goes with --bench step");
  }
  return bench;
}

}  // namespace

LaunchRequest launch_request(const Arguments& arguments) {
  LaunchRequest request;
  const bool bench = wants_bench(arguments);
  Arguments of_train = arguments;
  of_train.options.clear();
  for (const Arguments::Option& option : arguments.options) {
    if (option.name == "-n")
      request.ranks = number_of_ranks(*option.value);
    else if (option.name != "--bench")
      of_train.options.push_back(option);
  }
  request.only_rank_0 = arguments.has("--plan");
  request.command = {std::filesystem::read_symlink("/proc/self/exe"), bench ? "bench" : "train"};  // this very program
  if (bench) request.command.push_back("step");
  for (const std::string& word : of_train.words()) request.command.push_back(word);
  // Said once here instead of once per rank.
  const std::string& config = request.command[bench ? 3 : 2];
  if (access(config.c_str(), R_OK) != 0) throw UsageError("launch: cannot read the config file " + config);
  return request;
}

}  // namespace drivetrain::program
