// Which plugin call every thread is in, for those who ask from outside of it: the watch over hooks that do not return,
// and the program's answer to the launcher.
//
// Who asks may read a call that ends at the same moment. They ask about calls that have lasted for minutes, and end the
// process then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "internal.h"

namespace drivetrain {

class CurrentCall;

// Of one thread while it lives.
struct CallSeat {
  std::atomic<bool> taken = false;
  std::atomic<const CurrentCall*> innermost = nullptr;  // null: it is in no plugin
  std::atomic<uint64_t> calls = 0;                      // outermost ones begun so far
};

constexpr size_t kCallSeats = 256;  // threads beyond these are not seen
DRIVETRAIN_INTERNAL CallSeat* call_seats();
// Of this thread; null if there are more threads than seats.
DRIVETRAIN_INTERNAL CallSeat* own_call_seat();

}  // namespace drivetrain
