// The output folder of a run: claimed by rank 0, never one that holds a run already.
#pragma once

#include <string>

#include <drivetrain/value.h>

namespace drivetrain {

// Throws Error(config) if `path` holds a run. Pure check, before anything is started.
void check_run_folder(const std::string& path);

// Creates it (and its parents). Error(io) if that fails.
void create_run_folder(const std::string& path);

// The whole file or none (state/new_file.h). Error(io) if the disk is full.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace drivetrain
