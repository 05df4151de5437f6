// Which checkpoint of a folder of Megatron-LM is meant, by names of files alone. Any thread.
// Source: megatron/training/checkpointing.py (get_checkpoint_name, read_metadata).
#pragma once

#include <string>
#include <vector>

namespace drivetrain::megatron {

struct Place {
  std::string folder;  // of one iteration
  std::string form;    // "torch": a pickle per rank; "torch_dist", "zarr": Megatron Core's distributed checkpoint
  std::vector<std::string> notes;
};

// The form of the folder, or of the newest iteration in it; "": it is no folder of Megatron-LM.
std::string form_below(const std::string& folder);

// `tag`: "iter_0000040" or "release"; empty: the folder itself, what latest_checkpointed_iteration.txt names, or the
// only one. Error(config) that lists what is there.
Place find_place(const std::string& folder, const std::string& tag);

// Files of a checkpoint of form "torch", by tensor rank and pipeline stage: as many stages for every tensor rank.
// Error(checkpoint) naming what is missing or stands for parallelism that is not read.
std::vector<std::vector<std::string>> rank_files(const std::string& folder);

}  // namespace drivetrain::megatron
