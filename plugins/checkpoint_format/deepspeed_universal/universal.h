// Universal checkpoints of DeepSpeed: a folder per parameter with one file for its values and one per moment.
// Source: deepspeed/checkpoint/{ds_to_universal,universal_checkpoint}.py, deepspeed/runtime/engine.py.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain::universal {

// The folder that holds `zero/`: `folder` itself or one below it. "": there is none.
// Error(config) if it is not clear which, or if there is no tag of that name.
std::string find_folder(const std::string& folder, const std::string& tag);

std::shared_ptr<const Checkpoint> read_folder(const std::string& folder);

// `<folder>/global_step<N>_universal` and the file that names it.
void write_folder(const std::string& folder, const Checkpoint& state);

}  // namespace drivetrain::universal
