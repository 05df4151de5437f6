// Checkpoints from one format into another. Main thread. Memory: one tensor at a time, 256 MB for our own form.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/value.h>

#include "checkpoint_tools/renamed_checkpoint.h"
#include "formats/open_folder.h"
#include "internal.h"
#include "plan/prepared_run.h"
#include "train/export_extras.h"

namespace drivetrain {

// The state of a folder under our own names. `run`: planned with the model that the state is of, and for training if
// the moments are wanted. `folder`: for messages. Error(config) if it says that it is of another model.
DRIVETRAIN_INTERNAL std::shared_ptr<const Checkpoint> native_state(const OpenedFolder& opened, const PreparedRun& run,
                                                                   const std::string& folder);

ParamShapes param_shapes(const PreparedRun& run);

// Each writes a folder that was not there, whole or not at all. Error(config) if `to` is there; Error(io) for the disk.
DRIVETRAIN_INTERNAL void write_hf(const std::string& to, const Checkpoint& state, const PreparedRun& run,
                                  const ExportSource& source);
DRIVETRAIN_INTERNAL void write_format(const std::string& to, const CheckpointFormat& format, const std::string& naming,
                                      std::shared_ptr<const Checkpoint> state, const PreparedRun& run);
// A run's folder: `written` as resolved.json, and one checkpoint of a run of `config` from which `train` goes on with
// the step after. `run`: planned for training with that config. Error(checkpoint) if the optimizer's state is not
// there.
DRIVETRAIN_INTERNAL void write_run_folder(const std::string& to, const Checkpoint& state, const PreparedRun& run,
                                          const Value& config, const Value& written);

}  // namespace drivetrain
