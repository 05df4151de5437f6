// What is done with each word of the keys under which a state dict keeps its values, as torch.distributed.checkpoint
// writes them: {"optimizer", "state", "wte.weight", "exp_avg"}. Any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <drivetrain/toolkit/files/key_table.h>

namespace drivetrain::dcp {

// Parts of the table: the first word, the words in front of a weight's name, those within it, those of an optimizer,
// and the last word.
inline constexpr const char *kFirstWord = "first", *kInFront = "in front", *kInName = "within a name",
                            *kOfOptimizer = "optimizer", *kLastWord = "last";
std::span<const KeyRow> keys();

// What the runtime calls a tensor that a state dict has under these words: {"model", "wte.weight"} is
// "model/wte.weight", {"optimizer", "state", "wte.weight", "exp_avg"} is "optimizer/wte.weight.exp_avg". Empty: it is
// no such thing.
std::string name_of_path(const std::vector<std::string>& path);
bool is_of_optimizer(const std::vector<std::string>& path);
// A number of steps: of the whole, or of the optimizer for one parameter.
bool is_step(const std::vector<std::string>& path);
// Whether the table says that the value is not used; false for one that is read, and for one that nobody knows.
bool has_no_effect(const std::vector<std::string>& path);

}  // namespace drivetrain::dcp
