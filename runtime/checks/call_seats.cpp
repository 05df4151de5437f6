#include "checks/call_seats.h"

namespace drivetrain {
namespace {

CallSeat seats[kCallSeats];

struct TakenSeat {
  TakenSeat() {
    for (CallSeat& one : seats) {
      if (one.taken.exchange(true)) continue;
      seat = &one;
      return;
    }
  }
  ~TakenSeat() {
    if (!seat) return;
    seat->innermost = nullptr;
    seat->taken = false;
  }
  CallSeat* seat = nullptr;
};

}  // namespace

CallSeat* call_seats() { return seats; }

CallSeat* own_call_seat() {
  thread_local const TakenSeat own;
  return own.seat;
}

}  // namespace drivetrain
