// Which plugin makes the model of a folder, and from where it gets its weights. Main thread.
#pragma once

#include <string>

#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

struct ModelSource {
  Value section;             // "model" of a config
  std::string weights;       // read by the plugin's own rules; empty: the section names the folder itself
  Value recorded{};          // the section of the run that made the model; null: it is unknown
  bool is_export = false;    // of a run, by its final weights
  std::string strategies{};  // the folder that holds what strategies wrote; empty: none is read
  std::string tag{};         // of the checkpoint in `weights` that is meant; empty: the newest
};

// The folder to read in place of `folder`: that one, or its final weights where the run's resolved.json is damaged,
// which the log says. Error(config): it has no whole final weights either.
DRIVETRAIN_INTERNAL std::string readable_folder(const std::string& folder, Log& log);

// `folder`: a run folder, of which resolved.json says which plugin made the model (its weights are in final/, or, where
// there is none yet, in the newest checkpoint, or, where strategies wrote their part alone, those that the section
// names), or a Hugging Face folder. Of the latter the default plugin reads config.json, unless its model_type is the
// name of an installed plugin, which then gets the keys of config.json that are its options. Error(config) for a folder
// that holds no model.
DRIVETRAIN_INTERNAL ModelSource model_source(const std::string& folder, const Registry& registry);

}  // namespace drivetrain
