// Checkpoints of Megatron-LM as weights under the names of Megatron Core, every tensor whole (names.h). Errors:
// Error(checkpoint) naming file, tensor and what to do.
#pragma once

#include <memory>

#include <drivetrain/checkpoint_store.h>

#include "folder.h"

namespace drivetrain::megatron {

// Form "torch": a pickle per tensor rank and pipeline stage.
std::shared_ptr<const Checkpoint> read_ranks(const Place& place);
// Form "torch_dist": a folder of torch.distributed.checkpoint, and common.pt beside it.
std::shared_ptr<const Checkpoint> read_dist(const Place& place);

}  // namespace drivetrain::megatron
