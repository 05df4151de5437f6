// The first call of a rank to its device, which shows whether the GPU is there, free and whole. Main thread.
#pragma once

#include <cstdint>
#include <string>

#include "internal.h"

namespace drivetrain {

// use_device (open_device.h), and what it may say of a user's situation as an Error with the GPU and those who hold it.
DRIVETRAIN_INTERNAL void start_device(const std::string& device, int64_t local_rank, int64_t local_size);

}  // namespace drivetrain
