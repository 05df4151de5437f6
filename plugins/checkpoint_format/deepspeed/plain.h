// What DeepSpeed saved without ZeRO: whole tensors in one file, and the state of the optimizer by its own count. With
// 16 bits a wrapper around the optimizer keeps float32 values, one by one or flat in a tensor per parameter group.
// Source: deepspeed/runtime/fp16/{fused,unfused}_optimizer.py.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

namespace drivetrain::deepspeed {

struct PlainFigures {
  int64_t updates = 0;             // of the optimizer
  std::vector<std::string> notes;  // what was left out, and why
};

// Adds weights and moments of an mp_rank_00_model_states.pt to `made`. Error(checkpoint) for what does not fit
// together.
PlainFigures read_plain(const TorchCheckpoint::File& file, const std::set<std::string>& buffers, TorchCheckpoint& made);

}  // namespace drivetrain::deepspeed
