// Whether a thread that is in a call moves bytes to or from files, as the kernel counts them. Any thread.
#pragma once

#include <cstdint>

#include "internal.h"

namespace drivetrain {

struct MovedBytes {
  bool known = false;  // false: this kernel does not count, or the thread is gone
  // So far; with those of threads that may work for it: all that are in no call of their own and none of the runtime's.
  uint64_t bytes = 0;
  bool waits_disk = false;  // it waits for a disk that does not answer yet, in which nothing can be counted
};
// `thread`: its id, which has a call seat.
DRIVETRAIN_INTERNAL MovedBytes bytes_moved_by(int thread);

}  // namespace drivetrain
