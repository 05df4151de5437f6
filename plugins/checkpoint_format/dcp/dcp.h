// Folders of torch.distributed.checkpoint as checkpoints, read and written.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain::dcp {

std::shared_ptr<const Checkpoint> read_folder(const std::string& folder);
void write_folder(const std::string& folder, const Checkpoint& state);

// What accelerate's save_state and Hugging Face's Trainer make with FSDP: folders pytorch_model_fsdp_0 and optimizer_0.
bool has_parts_of_accelerate(const std::string& folder);

}  // namespace drivetrain::dcp
