#include "plugin_calls/call_seats.h"

#include <unistd.h>

#include <mutex>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

CallSeat seats[kCallSeats];

struct TakenSeat {
  TakenSeat() {
    for (CallSeat& one : seats) {
      if (one.taken.exchange(true)) continue;
      seat = &one;
      seat->thread = gettid();
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

std::optional<SeenCall> see_call(CallSeat& seat) {
  static std::mutex* const one_reader = new std::mutex;
  const std::lock_guard lock(*one_reader);
  // Either the call's end sees this, or its end has been seen here: both sides store first and load then.
  struct Reading {
    std::atomic<bool>& read;
    explicit Reading(std::atomic<bool>& flag) : read(flag) { read.store(true); }
    ~Reading() { read.store(false); }
  } const reading(seat.read);
  const CurrentCall* const call = seat.innermost.load();
  if (!call) return std::nullopt;
  const PluginCall& what = call->call();
  const bool moves_files = what.id.starts_with("checkpoint_store/") || what.id.starts_with("checkpoint_format/") ||
                           std::string_view(what.hook) == "open";
  return SeenCall{call->text(), moves_files};
}

}  // namespace drivetrain
