#include "launch/request.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "drivetrain/commands.h"

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

// What ranks can be timed at instead of trained, and the options that only this timing knows.
struct RankBench {
  const char* name;
  bool config;  // it times the run of one
  std::vector<const char*> options;
};
const std::vector<RankBench>& rank_benches() {
  static const std::vector<RankBench> list = {
      {"step", true, {"--steps", "--warmup", "--json"}},
      {"collectives",
       false,
       {"--op", "--sizes", "--from", "--to", "--rounds", "--device", "--communicator", "--threads", "--json"}},
      {"context",
       false,
       {"--batch", "--heads", "--groups", "--head-size", "--seq", "--dtype", "--attention", "--rounds", "--device",
        "--threads", "--json"}}};
  return list;
}

bool takes(const RankBench& bench, const std::string& option) {
  return std::any_of(bench.options.begin(), bench.options.end(), [&](const char* name) { return option == name; });
}

// Null: ranks train.
const RankBench* wanted_bench(const Arguments& arguments) {
  const RankBench* wanted = nullptr;
  for (const Arguments::Option& option : arguments.options) {
    if (option.name != "--bench") continue;
    wanted = nullptr;
    for (const RankBench& bench : rank_benches())
      if (*option.value == bench.name) wanted = &bench;
    if (!wanted)
      throw UsageError("launch: --bench wants step, collectives or context, got \"" + *option.value +
                       "\"; the other benchmarks have one process");
  }
  return wanted;
}

// What only timing, or only another timing, or only training knows.
void refuse_what_does_not_fit(const Arguments& arguments, const RankBench* wanted) {
  for (const Arguments::Option& option : arguments.options) {
    if (wanted && option.name == "--plan") throw UsageError("launch: --plan and --bench exclude each other");
    if (option.name == "--svg" && !arguments.has("--plan")) throw UsageError("launch: --svg goes with --plan");
    if (wanted && takes(*wanted, option.name)) continue;
    if (option.name == "--json" && arguments.has("--plan")) continue;
    std::string benches;
    for (const RankBench& bench : rank_benches())
      if (takes(bench, option.name)) benches += std::string(benches.empty() ? "" : " or ") + "--bench " + bench.name;
    if (!benches.empty()) throw UsageError("launch: " + option.name + " goes with " + benches);
  }
}

// Said once here instead of once per rank.
void check_config(const std::vector<std::string>& plain, const RankBench* wanted) {
  if (wanted && !wanted->config) {
    if (!plain.empty())
      throw UsageError(std::string("launch: --bench ") + wanted->name + " takes no config, got \"" + plain.front() +
                       "\"");
    return;
  }
  if (plain.empty())
    throw UsageError("launch: something is missing after \"drivetrain launch\"\n" + usage_line(find_command("launch")));
  if (access(plain.front().c_str(), R_OK) != 0)
    throw UsageError("launch: cannot read the config file " + plain.front());
}

}  // namespace

LaunchRequest launch_request(const Arguments& arguments) {
  LaunchRequest request;
  const RankBench* const bench = wanted_bench(arguments);
  refuse_what_does_not_fit(arguments, bench);
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
  if (bench) request.command.push_back(bench->name);
  check_config(of_train.plain, bench);
  if (!of_train.plain.empty()) {
    request.config = read_config_once(of_train.plain.front());
    of_train.plain.front() = request.config.path;
  }
  for (const std::string& word : of_train.words()) request.command.push_back(word);
  return request;
}

}  // namespace drivetrain::program
