// `drivetrain config check|resolve`: the JSON and what it asks for, without training.
#include <charconv>
#include <iostream>

#include "app/commands.h"
#include "app/plan_training.h"
#include "config/load.h"
#include "config/places.h"
#include "config/printable.h"
#include "config/suggest.h"
#include "plan/min_world_size.h"
#include "report/facts.h"
#include "report/plan_text.h"

namespace drivetrain {
namespace {

constexpr const char* kConfigUsage = "\nusage: drivetrain config check|resolve CONFIG [-n RANKS] [--set KEY=VALUE]...";

struct ConfigArguments {
  std::string verb;
  TrainArguments train;
  int64_t ranks = 0;  // 0: what the batch sizes and the axes of the mesh say
};

ConfigArguments parse_config_arguments(std::vector<std::string> arguments) {
  ConfigArguments args;
  if (arguments.empty()) throw fail(ErrorCode::config, "config wants a verb", kConfigUsage);
  args.verb = arguments.front();
  arguments.erase(arguments.begin());
  if (args.verb == "explain" || args.verb == "schema")
    throw fail(ErrorCode::config, "config ", args.verb, " is not in this version; see `drivetrain inspect KIND/NAME",
               args.verb == "schema" ? " --schema`" : "`");
  if (args.verb != "check" && args.verb != "resolve")
    throw fail(ErrorCode::config, "config does not know \"", shown(args.verb), "\"",
               did_you_mean(args.verb, {"check", "resolve"}), kConfigUsage);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] != "-n") continue;
    const std::string text = option_value(arguments, i);
    const char* const end = text.data() + text.size();
    const auto [stop, failed] = std::from_chars(text.data(), end, args.ranks);
    if (failed != std::errc() || stop != end || args.ranks < 1)
      throw fail(ErrorCode::config, "-n wants a number of ranks, got \"", text, "\"", kConfigUsage);
    arguments.erase(arguments.begin() + static_cast<int64_t>(i) - 1, arguments.begin() + static_cast<int64_t>(i) + 1);
    break;
  }
  args.train = parse_train_arguments(arguments);
  return args;
}

// All three batch sizes fix the number of data-parallel ranks; otherwise one.
int64_t data_parallel_ranks(const RunSettings& s) {
  if (!s.train_batch_size || !s.micro_batch_size || !s.accumulation) return 1;
  const int64_t per_rank = *s.micro_batch_size * *s.accumulation;
  return per_rank > 0 && *s.train_batch_size % per_rank == 0 ? *s.train_batch_size / per_rank : 1;
}

}  // namespace

int config_command(const std::vector<std::string>& arguments) {
  const ConfigArguments args = parse_config_arguments(arguments);
  Problems problems;
  Value config = load_config(args.train.config, args.train.sets, problems);
  expand_places(config);
  const RunSettings settings = read_run_settings(config, args.train.config, problems);
  const Registry registry(search_path(settings, args.train.plugin_paths));
  std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, settings.device, problems);
  problems.throw_if_any();

  RankSetup setup;
  setup.log = make_console_log(console_settings(0));
  show_notes(problems, *setup.log);
  setup.store = make_local_store();
  setup.environment.world_size =
      args.ranks ? args.ranks : data_parallel_ranks(settings) * min_world_size(settings, chosen, registry, setup);
  setup.environment.local_size = setup.environment.world_size;
  const auto run = plan_training(settings, std::move(chosen), registry, setup);
  if (args.verb == "resolve") {
    std::cout << resolved_value(*run, registry).to_json(2) << "\n";
  } else {
    std::cout << printable(concat(args.train.config, ": no problems found\n", plan_headline(run->plan), "\n"));
  }
  return 0;
}

}  // namespace drivetrain
