// Weights and moments of a DeepSpeed tag, put together from the flat partitions of all ranks.
// Source: deepspeed/utils/zero_to_fp32.py, deepspeed/runtime/zero/{stage_1_and_2,stage3}.py.
#pragma once

#include <memory>

#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "folder.h"

namespace drivetrain::deepspeed {

// The checkpoint with its facts. Error(checkpoint) for what is damaged, missing or not supported, by name.
std::shared_ptr<const Checkpoint> open_tag(const TagFiles& files, const std::vector<std::string>& notes);

}  // namespace drivetrain::deepspeed
