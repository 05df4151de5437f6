#include "shared/commands.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/printable.h"
#include "base/suggest.h"
#include "cli/error_line.h"
#include "contract/device_runtime.h"

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

TrainArguments train_arguments(const cli::Arguments& arguments) {
  TrainArguments args;
  args.config = arguments.plain().front();
  args.sets = arguments.all("--set");
  args.below = arguments.all("--deepspeed");
  args.plugin_paths = arguments.all("--plugin-path");
  args.plan = arguments.has("--plan");
  args.svg = arguments.text("--svg");
  args.json = arguments.has("--json");
  args.check_plugins = arguments.has("--check-plugins");
  args.resume = arguments.text("--resume");
  if (arguments.has("--resume") && args.resume.empty())
    throw fail(ErrorCode::config, "--resume is empty; wanted auto, never or the name of a checkpoint");
  return args;
}

SearchPath search_path(const RunSettings& settings, const std::vector<std::string>& option_paths) {
  SearchPath search = SearchPath::standard(settings.plugins.paths, option_paths, environment("DRIVETRAIN_PLUGIN_PATH"));
  search.allow_only(settings.plugins.allow);
  if (device_runtime()) search.machine.cuda_arch = device_runtime()->facts(0).arch;
  return search;
}

std::vector<std::string> settled_lines(const Problems& problems) {
  constexpr size_t kWide = 24;  // a longer value moves only its own rule
  size_t keys = 0, values = 0;
  for (const AutoValue& s : problems.resolved())
    keys = std::max(keys, s.key.size()), values = std::max(values, std::min(s.value.size(), kWide));
  std::vector<std::string> lines;
  for (const AutoValue& s : problems.resolved())
    lines.push_back(concat("  ", s.key, std::string(keys - s.key.size() + 2, ' '), s.value,
                           std::string(values > s.value.size() ? values - s.value.size() + 2 : 2, ' '), s.rule));
  if (!lines.empty()) lines.insert(lines.begin(), "what the file leaves to rules:");
  return lines;
}

void show_notes(const Problems& problems, Log& log) {
  for (const Problem& note : problems.notes()) log.warning(concat(note.where.text(), " ", note.message));
}

LogSettings console_settings(int64_t rank) {
  LogSettings settings;
  settings.rank = rank;
  settings.level = level_of(environment("DRIVETRAIN_LOG"));
  settings.terminal = isatty(STDOUT_FILENO) != 0;
  settings.colour = cli::has_colour(STDERR_FILENO);  // of warnings and errors, which go there
  return settings;
}

}  // namespace drivetrain
