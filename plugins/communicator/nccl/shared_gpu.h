// Ranks that share one GPU: NCCL lets them from 2.30 on, where NCCL_MULTI_RANK_GPU_ENABLE is set, and they take turns.
// For tests of counts and bits; nothing that is timed there tells of several GPUs.
#pragma once

#include <string>

#include <drivetrain/services.h>

#include "board.h"

namespace drivetrain::nccl {

// Before the first group of a rank. Says on the board that another rank has this GPU, too. Throws Error(config): the
// NCCL in use is older, with where it was loaded from; or the GPU is a slice (MIG). Without the variable nothing is
// asked.
void check_shared_gpu(Board& board, int device);

// Rank 0, once the ranks have met: version and file of the library in use, and whether ranks share a GPU.
std::string library_in_use(Board& board);

}  // namespace drivetrain::nccl
