#include "app/commands.h"

#include <unistd.h>

#include <cstdlib>

#include "config/printable.h"
#include "config/suggest.h"
#include "device/device_runtime.h"

namespace drivetrain {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

LogLevel level_of(const std::string& name) {
  if (name.empty() || name == "info") return LogLevel::info;
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  if (name == "error") return LogLevel::error;
  throw fail(ErrorCode::config, "DRIVETRAIN_LOG is \"", shown(name), "\"; wanted debug, info, warning or error",
             did_you_mean(name, {"debug", "info", "warning", "error"}));
}

}  // namespace

std::string option_value(const std::vector<std::string>& arguments, size_t& i) {
  if (i + 1 >= arguments.size()) throw fail(ErrorCode::config, arguments[i], " wants a value after it");
  return arguments[++i];
}

TrainArguments parse_train_arguments(const std::vector<std::string>& arguments) {
  constexpr const char* kUsage =
      "\nusage: drivetrain train CONFIG [--set KEY=VALUE]... [--plan [--json] [--svg FILE]] [--plugin-path DIR]...";
  TrainArguments args;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (a == "--set")
      args.sets.push_back(option_value(arguments, i));
    else if (a.rfind("--set=", 0) == 0)
      args.sets.push_back(a.substr(6));
    else if (a == "--plugin-path")
      args.plugin_paths.push_back(option_value(arguments, i));
    else if (a == "--plan")
      args.plan = true;
    else if (a == "--json")
      args.json = true;
    else if (a == "--svg")
      args.svg = option_value(arguments, i);
    else if (a == "--resume" || a.rfind("--resume=", 0) == 0)
      throw fail(ErrorCode::config, "--resume is not in this version: there are no checkpoints yet", kUsage);
    else if (a.rfind("-", 0) == 0)
      throw fail(ErrorCode::config, "train does not know ", a, kUsage);
    else if (args.config.empty())
      args.config = a;
    else
      throw fail(ErrorCode::config, "train takes one config, got ", args.config, " and ", a, kUsage);
  }
  if (args.config.empty()) throw fail(ErrorCode::config, "train wants a config file", kUsage);
  if (!args.svg.empty() && !args.plan) throw fail(ErrorCode::config, "--svg draws a plan: it goes with --plan", kUsage);
  if (args.json && !args.plan) throw fail(ErrorCode::config, "--json writes a plan: it goes with --plan", kUsage);
  return args;
}

SearchPath search_path(const RunSettings& settings, const std::vector<std::string>& option_paths) {
  SearchPath search = SearchPath::standard(settings.plugins.paths, option_paths, environment("DRIVETRAIN_PLUGIN_PATH"));
  search.allow_only(settings.plugins.allow);
  if (device_runtime()) search.machine.cuda_arch = device_runtime()->facts(0).arch;
  return search;
}

void show_notes(const Problems& problems, Log& log) {
  for (const Problem& note : problems.notes()) log.warning(concat(note.where.text(), " ", note.message));
}

LogSettings console_settings(int64_t rank) {
  LogSettings settings;
  settings.rank = rank;
  settings.level = level_of(environment("DRIVETRAIN_LOG"));
  settings.terminal = isatty(STDOUT_FILENO) != 0;
  settings.colour = settings.terminal && environment("NO_COLOR").empty();
  return settings;
}

}  // namespace drivetrain
