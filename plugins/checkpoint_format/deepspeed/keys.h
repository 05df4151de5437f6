// What is done with each key of DeepSpeed's files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <drivetrain/toolkit/files/key_table.h>
#include <drivetrain/toolkit/torch_files/pickle_tree.h>

namespace drivetrain::deepspeed {

// Parts of the table: of *_model_states.pt, of *_optim_states.pt, and of the optimizer_state_dict in that.
inline constexpr const char *kModelStates = "model_states", *kOptimStates = "optim_states",
                            *kOptimizerState = "optimizer_state_dict";

std::span<const KeyRow> keys();

// Keys of a dict that this part of the table does not have: what the user put beside (client_state), or a newer
// DeepSpeed.
std::vector<std::string> unknown_keys(const PickleTree& tree, const PickleNode& node, const char* part);

}  // namespace drivetrain::deepspeed
