// Which plugin call every thread is in, for those who ask from outside of it: the watch over hooks that do not return,
// the one over a rank that does not go on, and the program's answer to the launcher.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "internal.h"

namespace drivetrain {

class CurrentCall;

// Of one thread while it lives.
struct CallSeat {
  std::atomic<bool> taken = false;
  std::atomic<const CurrentCall*> innermost = nullptr;  // null: it is in no plugin
  std::atomic<uint64_t> calls = 0;                      // outermost ones begun so far
  std::atomic<bool> read = false;                       // a call that ends waits until nobody reads it
  std::atomic<int> thread = 0;                          // its id; that of the process for the main thread
};

constexpr size_t kCallSeats = 256;  // threads beyond these are not seen
DRIVETRAIN_INTERNAL CallSeat* call_seats();
// Of this thread; null if there are more threads than seats.
DRIVETRAIN_INTERNAL CallSeat* own_call_seat();

// The innermost call of a seat, read while it cannot end. Nothing: its thread is in no plugin. One reader at a time per
// process: others wait.
struct SeenCall {
  std::string text;          // "optimizer/mine, hook update, rank 1"
  bool moves_files = false;  // as many bytes as there are, which may take hours
};
DRIVETRAIN_INTERNAL std::optional<SeenCall> see_call(CallSeat& seat);

}  // namespace drivetrain
