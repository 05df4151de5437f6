// The threads that LibTorch's operators compute on.
#pragma once

#include <cstdint>

#include "internal.h"

namespace drivetrain {

// By the thread that computes, before any other operator: makes the functions of MKL ready, whose first call must not
// come from two threads at once. May be called again.
DRIVETRAIN_INTERNAL void make_math_ready();
// The same, with the number of threads.
DRIVETRAIN_INTERNAL void set_math_threads(int64_t threads);

}  // namespace drivetrain
