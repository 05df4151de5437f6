// A tag of DeepSpeed as a checkpoint.
#pragma once

#include <memory>

#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "folder.h"

namespace drivetrain::deepspeed {

// The checkpoint with its facts. Error(checkpoint) for what is damaged, missing or not supported, by name.
std::shared_ptr<const Checkpoint> open_tag(const TagFiles& files, const std::vector<std::string>& notes);

}  // namespace drivetrain::deepspeed
