// Weights that fit another model: a checkpoint says of its model what its tensors do not show (the base of rotary
// angles, the activation), and a run's model says the same of itself. Any thread.
#pragma once

#include <string>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/model.h>

#include "internal.h"

namespace drivetrain {

// Compares the fact "model" of the checkpoint (checkpoint_format.h) with WeightRules::config. Error(config) listing
// every fact in which they differ. Returns a text for the log on what the model says nothing about; "" if there is
// nothing. `folder`: for messages.
DRIVETRAIN_INTERNAL std::string check_model_facts(const Checkpoint& checkpoint, const WeightRules& rules,
                                                  const std::string& folder);

// Of a checkpoint of ours: one line if the run that saved it had other options of its model than `options`, those of
// the plugin `name`; "" if not.
DRIVETRAIN_INTERNAL std::string differing_options(const Checkpoint& native, const std::string& name,
                                                  const Value& options, const std::string& folder);

}  // namespace drivetrain
