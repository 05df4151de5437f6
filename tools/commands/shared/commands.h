// The commands that are libraries of their own (run_command.h), and what they share.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.h"
#include "config/run_settings.h"
#include "internal.h"
#include "log/log_console.h"
#include "plugin/discover.h"

namespace drivetrain {

struct TrainArguments {
  std::string config;
  std::vector<std::string> sets, plugin_paths, below;  // below: configs that are read first
  bool plan = false;
  std::string svg;    // file for the schedule's picture; only with plan
  bool json = false;  // the plan as JSON; only with plan
  bool check_plugins = false;
  std::string resume;  // "auto", "never", a tag; "": not given
};
TrainArguments train_arguments(const cli::Arguments& arguments);

// plugins.paths of the config, --plugin-path, DRIVETRAIN_PLUGIN_PATH, the installed folder; plugins.allow.
SearchPath search_path(const RunSettings& settings, const std::vector<std::string>& option_paths);

// A table of what a config leaves to rules: key, value, rule. Empty where there is nothing.
std::vector<std::string> settled_lines(const Problems& problems);

// What a config says without effect, as warnings: keys that are ignored, names that stand for others.
void show_notes(const Problems& problems, Log& log);

// Level and colour from DRIVETRAIN_LOG, NO_COLOR and whether stdout is a terminal.
LogSettings console_settings(int64_t rank);

DRIVETRAIN_INTERNAL int train_command(const cli::Arguments& arguments);
int config_command(const cli::Arguments& arguments);
int generate_command(const cli::Arguments& arguments);
int evaluate_command(const cli::Arguments& arguments);
int checkpoint_command(const cli::Arguments& arguments);
int convert_command(const cli::Arguments& arguments);
int data_command(const cli::Arguments& arguments);
int doctor_command(const cli::Arguments& arguments);
int flight_command(const cli::Arguments& arguments);
int plan_command(const cli::Arguments& arguments);
int bench_command(const cli::Arguments& arguments);

}  // namespace drivetrain
