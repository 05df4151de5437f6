// The set that `drivetrain evaluate` is asked for: one of the run's section `eval`, an entry in JSON, or a file that an
// evaluation plugin takes. Main thread.
#pragma once

#include <optional>
#include <string>

#include "internal.h"
#include "plan/choose_plugins.h"
#include "plugin/registry.h"

namespace drivetrain {

struct EvalSet {
  std::string name;
  Value entry;                        // {"type", "params"}
  std::optional<int64_t> seq_length;  // of the run's dataset, where the folder is a run's

  void set_option(const std::string& key, Value value);
};

// `wanted`: the word that was typed. Error(config) that lists the run's sets if it is nothing.
DRIVETRAIN_INTERNAL EvalSet find_eval_set(const std::string& folder, const std::string& wanted,
                                          const Registry& registry);

// Its plugin with parsed options. Throws Error with all problems of the entry.
DRIVETRAIN_INTERNAL ChosenPlugin choose_eval_set(const EvalSet& set, const Registry& registry);

}  // namespace drivetrain
