// One tensor out of the parts that tensor parallelism made of it. Any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "names.h"

namespace drivetrain::megatron {

struct RankPart {
  TorchCheckpoint::File file;
  TorchTensor tensor;
};

// Adds the weight `name` to `made`. Of what is not cut every rank has a copy, which are compared to the bit.
// Error(checkpoint) naming file and tensor if the parts are not of one tensor.
void join_parts(TorchCheckpoint& made, const std::string& name, Cut cut, const std::vector<RankPart>& parts);

}  // namespace drivetrain::megatron
