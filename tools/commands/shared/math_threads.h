// The threads that LibTorch's operators compute on.
#pragma once

#include <cstdint>

#include "internal.h"

namespace drivetrain {

// Called once, by the thread that computes, before any other operator: sets their number and makes the functions of MKL
// ready, whose first call must not come from two threads at once.
DRIVETRAIN_INTERNAL void set_math_threads(int64_t threads);

}  // namespace drivetrain
