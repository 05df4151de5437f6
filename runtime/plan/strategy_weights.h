// Weights that strategies' layers add to a model: the folders that hold them, and what the model's own weights are with
// them. Of a run whose model is built, on the meta device too. Main thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/strategy.h>

#include "internal.h"
#include "plan/prepared_run.h"

namespace drivetrain {

struct StrategyFolder {
  std::string owner;  // "strategy/NAME"
  WeightFolder folder;
};

// Of all strategies, outermost first. A folder may also hold parameters of the model that a strategy trains as a whole.
// Error(plugin) for one that names a parameter which is not there, a parameter that two name, a folder that lies
// elsewhere, and two that would be one.
DRIVETRAIN_INTERNAL std::vector<StrategyFolder> strategy_folders(const PreparedRun& run);

// Strategy::exports_model of all of them.
DRIVETRAIN_INTERNAL bool exports_model(const PreparedRun& run);

// A parameter of the model with what all strategies add to it, innermost first. `value`: float32, whole. Collective
// where `whole` is.
DRIVETRAIN_INTERNAL at::Tensor merged(const PreparedRun& run, const std::string& param, at::Tensor value,
                                      const Strategy::WholeParam& whole);

// That the model has a rule for every parameter which no strategy added: Error(plugin) that names them. `purpose`:
// "they cannot be read from FOLDER".
DRIVETRAIN_INTERNAL void check_rules(const PreparedRun& run, const WeightRules& rules, const std::string& purpose);

// "a, b and 7 more".
DRIVETRAIN_INTERNAL std::string some_names(const std::vector<std::string>& names);

}  // namespace drivetrain
