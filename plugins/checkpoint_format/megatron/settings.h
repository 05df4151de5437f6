// What a checkpoint of Megatron-LM says of itself beside its tensors: the version, the iteration, the number of ranks.
// Any thread.
#pragma once

#include <cstdint>

#include <drivetrain/toolkit/torch_files/torch_file.h>

namespace drivetrain::megatron {

// Error(checkpoint) naming the file if rows of tensors stand in another order. `versioned`: the file has to have a
// checkpoint_version; else it may.
void check_version(const TorchFile& file, bool versioned);

// An integer of the options; 0 where there is none.
int64_t option_of(const TorchFile& file, const char* name);

// How many iterations were done; 0 where the file does not say.
int64_t iteration_of(const TorchFile& file);

// For "notes": that only weights are read.
std::string optimizer_note(const std::string& folder);

}  // namespace drivetrain::megatron
