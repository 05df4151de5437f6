// From a config to the list of plugins that a run uses, with their parsed options. Main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/sections.h"
#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

// A selection with its parsed options.
struct ChosenPlugin {
  Selection selection;
  std::shared_ptr<void> options;
  std::vector<ChosenPlugin> fallbacks;  // tried in order if this one refuses the run
  const std::string& kind() const { return selection.kind; }
  const std::string& name() const { return selection.name; }
  std::string id() const { return kind() + "/" + name(); }
};

enum class Purpose { train, generate };  // generate: no dataset, optimizer, lr_schedule, monitors

// Selection and options of every section, switched-off ones included. `problems` gets all problems of the file at once.
DRIVETRAIN_INTERNAL std::vector<ChosenPlugin> choose_plugins(const Value& config, const Registry& registry,
                                                             const std::string& device, Problems& problems,
                                                             Purpose purpose = Purpose::train);

// The sets of the section `eval` alone, switched-off ones included; for `train` choose_plugins has them too.
DRIVETRAIN_INTERNAL std::vector<ChosenPlugin> choose_eval_sets(const Value& config, const Registry& registry,
                                                               Problems& problems);

}  // namespace drivetrain
