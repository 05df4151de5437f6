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
  Value entry;  // {"type", "params"}
  // Of the run, where the folder is a run's: its rows; the seed by which datasets choose their validation part.
  std::optional<int64_t> seq_length{};
  int64_t seed = RunSettings().seed;

  DRIVETRAIN_INTERNAL void set_option(const std::string& key, Value value);
};

// `wanted`: the word that was typed. Error(config) that lists the run's sets if it is nothing.
DRIVETRAIN_INTERNAL EvalSet find_eval_set(const std::string& folder, const std::string& wanted,
                                          const Registry& registry);

// Says in the options which tokenizer reads texts, where the evaluation has such options: the one that `named` names, a
// folder, a file or a plugin; without that, and where the set does not say it, the one of the run's section "tokenizer"
// or whose files are in the model's folder. Error(config) for what is no tokenizer.
DRIVETRAIN_INTERNAL void add_tokenizer(EvalSet& set, const std::string& folder, const std::string& named,
                                       const Registry& registry);

// Its plugin with parsed options. Throws Error with all problems of the entry.
DRIVETRAIN_INTERNAL ChosenPlugin choose_eval_set(const EvalSet& set, const Registry& registry);

}  // namespace drivetrain
