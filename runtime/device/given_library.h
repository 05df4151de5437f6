// DRIVETRAIN_NCCL=PATH: another library of collectives than the one that LibTorch brings. Opened before LibTorch's CUDA
// libraries, which then take it, as they would one of LD_PRELOAD: both have the same name inside. Main thread.
#pragma once

#include "internal.h"

namespace drivetrain {

inline constexpr const char* kGivenLibrary = "DRIVETRAIN_NCCL";

// Null or empty: nothing is opened. Throws Error(config): no such file, no library, another one than libnccl.so.2, one
// that is older than LibTorch's, or one that comes too late since another one is open.
DRIVETRAIN_INTERNAL void open_given_library(const char* path);

}  // namespace drivetrain
