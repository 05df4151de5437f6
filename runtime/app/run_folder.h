// The output folder of a run: claimed by rank 0, never one that holds a run already.
#pragma once

#include <string>

#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

// Throws Error(config) if `path` holds a run; what that run's writers left half written is removed if they are gone.
DRIVETRAIN_INTERNAL void check_run_folder(const std::string& path);

// Creates it (and its parents) and takes it by its first file, resolved.json: of several runs that want the same folder
// at the same time one gets it, the others throw Error(config). Removes what a killed run left half written there.
// Error(io) if the folder cannot be made or written to.
DRIVETRAIN_INTERNAL void take_run_folder(const std::string& path, const std::string& resolved_json);

// The whole file or none (state/new_file.h). Error(io) if the disk is full.
DRIVETRAIN_INTERNAL void write_text_file(const std::string& path, const std::string& text);

}  // namespace drivetrain
