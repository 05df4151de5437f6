// What a flight record is read as: the names of its calls, states and parts of a step.
#include <iterator>

#include "flight/record.h"

namespace drivetrain {

const char* name_of(FlightOp op) {
  constexpr const char* kNames[kFlightOps] = {"all_reduce",    "all_gather", "reduce_scatter",
                                              "all_to_all",    "broadcast",  "barrier",
                                              "allocate_once", "send",       "recv"};
  return static_cast<int>(op) < kFlightOps ? kNames[static_cast<int>(op)] : "?";
}

const char* name_of(FlightDoing doing) {
  constexpr const char* kNames[] = {"no step",
                                    "loading a micro-batch",
                                    "forward",
                                    "backward",
                                    "the weights' half of backward",
                                    "sending to another stage",
                                    "receiving from another stage",
                                    "agreeing on the step",
                                    "update",
                                    "summing gradients",
                                    "enqueuing a recorded step",
                                    "evaluation",
                                    "saving a checkpoint"};
  static_assert(std::size(kNames) == kFlightDoings);
  return static_cast<size_t>(doing) < std::size(kNames) ? kNames[static_cast<size_t>(doing)] : "?";
}

const char* name_of(FlightState state) {
  constexpr const char* kNames[] = {"called", "pending", "waiting", "done", "failed"};
  return static_cast<size_t>(state) < std::size(kNames) ? kNames[static_cast<size_t>(state)] : "?";
}

}  // namespace drivetrain
