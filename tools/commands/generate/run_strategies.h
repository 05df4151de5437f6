// The strategies of a run whose model is sampled or evaluated: those that change what it computes take part as they
// did in the run, with their parameters and their state. Main thread.
#pragma once

#include <set>
#include <string>

#include "generate/model_source.h"
#include "internal.h"
#include "run/run.h"

namespace drivetrain {

// The section "strategy" of a run's resolved.json, a list of {"type", "params"}; null: the folder is no run's.
DRIVETRAIN_INTERNAL Value recorded_strategies(const std::string& folder);

// Their ids for messages, without those that every run has.
DRIVETRAIN_INTERNAL std::string chosen_strategies(const Value& recorded, const Registry& registry);

// `recorded` without those that change nothing: which decorate neither layers nor attention nor batches, or whose
// part is merged into the weights in `source`. `run`: planned with all of them.
DRIVETRAIN_INTERNAL Value acting_strategies(const Value& recorded, const PreparedRun& run, const Registry& registry,
                                            const ModelSource& source);

// Where a run has the parameters that strategies of `run` added: the checkpoint of the step of its final weights, or
// final/ itself. Where nothing is added, or `folder` is no run's: `source`. Error(config): nowhere.
DRIVETRAIN_INTERNAL ModelSource source_with_strategies(const ModelSource& source, const std::string& folder,
                                                       const PreparedRun& run);

// A line where a run has other weights than those of `used`: a newer checkpoint than final/, or none but a checkpoint,
// of which strategies that are not in `acting` would have made the final ones. Error(config): it has none at all.
DRIVETRAIN_INTERNAL void say_which_weights(const ModelSource& used, const std::string& folder, const Value& acting,
                                           const PreparedRun& run);

// What strategies keep beside parameters, from the same checkpoint. `run`: built. Error(config): there is none, and
// what the model computes depends on it.
DRIVETRAIN_INTERNAL void load_strategy_state(Run& run, const std::string& folder);

}  // namespace drivetrain
