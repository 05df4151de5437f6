// Folders of torch.distributed.checkpoint as checkpoints, read and written.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain::dcp {

std::shared_ptr<const Checkpoint> read_folder(const std::string& folder);
void write_folder(const std::string& folder, const Checkpoint& state);

// What the runtime calls a tensor that a state dict has under these keys: {"model", "wte.weight"} is
// "model/wte.weight", {"optimizer", "state", "wte.weight", "exp_avg"} is "optimizer/wte.weight.exp_avg". Empty: it is
// no such thing.
std::string name_of_path(const std::vector<std::string>& path);
bool is_of_optimizer(const std::vector<std::string>& path);

// What accelerate's save_state and Hugging Face's Trainer make with FSDP: folders pytorch_model_fsdp_0 and optimizer_0.
bool has_parts_of_accelerate(const std::string& folder);

}  // namespace drivetrain::dcp
