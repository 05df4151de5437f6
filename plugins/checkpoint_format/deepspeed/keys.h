// What is done with each key of DeepSpeed's files: a table that the reader itself uses, and that README.md shows.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/toolkit/torch_files/pickle_tree.h>

namespace drivetrain::deepspeed {

enum class KeyUse { honoured, compared, without_effect, refused };

struct KeyRow {
  const char* key;
  KeyUse use;
  const char* why;
};

const std::vector<KeyRow>& keys_of_model_states();     // *_model_states.pt
const std::vector<KeyRow>& keys_of_optim_states();     // *_optim_states.pt
const std::vector<KeyRow>& keys_of_optimizer_state();  // optimizer_state_dict in it

const char* word_of(KeyUse use);  // "honoured"

// Keys of a dict that the table does not have: what the user put beside (client_state), or a newer DeepSpeed.
std::vector<std::string> unknown_keys(const PickleTree& tree, const PickleNode& node, const std::vector<KeyRow>& table);

}  // namespace drivetrain::deepspeed
