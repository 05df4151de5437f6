// A config read and planned as `train` would, without a rank: what the `config` commands share. Main thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "internal.h"
#include "plan/prepared_run.h"
#include "shared/commands.h"
#include "train/long_context.h"

namespace drivetrain {

struct CheckedConfig {
  std::string path;
  Value config = Value::object();  // all layers and --set, as far as the file could be read
  RunSettings settings;
  Problems problems;                  // of the file itself, with its notes and what it leaves to rules
  std::vector<std::string> warnings;  // of the plan
  std::unique_ptr<Registry> registry;
  std::unique_ptr<PreparedRun> run;  // null where the config is refused
  ErrorCode code = ErrorCode::config;
  std::string refusal;  // what `train` would say; "" where there is a plan

  void throw_if_refused() const;  // Error(code) with the refusal
};

struct ConfigRequest {
  std::string path;
  std::vector<std::string> sets, below, plugin_paths;  // below: configs that are read first
  int64_t ranks = 0;                                   // 0: as many as the config asks for
  // What long_context chooses for, ranks aside; nothing: what is at hand.
  std::optional<LongContextMachine> machine = {};
};
// Of a command with -n, --set, --deepspeed and --plugin-path.
ConfigRequest config_request(const std::string& path, const cli::Arguments& arguments);

// Throws nothing because of the file.
DRIVETRAIN_INTERNAL CheckedConfig check_config(const ConfigRequest& request);

// What a run says at its start and its config may be the cause of: each note with its place, keys without effect here,
// what is expensive. Lines; no values that rules gave.
DRIVETRAIN_INTERNAL std::vector<std::string> notes_of(const CheckedConfig& checked);

}  // namespace drivetrain
