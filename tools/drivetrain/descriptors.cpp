// The program's own `close`, `close_range` and `closefrom`, in the place of libc's. A plugin that closes descriptors
// which are not its own is named at once (runtime/process/guarded_descriptors.h); all else is as it was. Libraries that
// are opened later look for these names in the program first.
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drivetrain/stack_trace.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these have their own

extern "C" __attribute__((visibility("default"))) int close(int descriptor) {
  if (descriptor >= 0)
    drivetrain::program::refuse_closing(static_cast<unsigned>(descriptor), static_cast<unsigned>(descriptor));
  return static_cast<int>(syscall(SYS_close, descriptor));
}

extern "C" __attribute__((visibility("default"))) int close_range(unsigned first, unsigned last, int flags) noexcept {
  if ((static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) == 0) drivetrain::program::refuse_closing(first, last);
  return static_cast<int>(syscall(SYS_close_range, first, last, flags));
}

extern "C" __attribute__((visibility("default"))) void closefrom(int first) noexcept {
  close_range(first < 0 ? 0U : static_cast<unsigned>(first), ~0U, 0);
}

#endif
