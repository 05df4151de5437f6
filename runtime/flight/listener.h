// Whoever adds up times hears what a thread writes into its rank's flight record, at once and on that thread.
#pragma once

#include "flight/record.h"
#include "internal.h"

namespace drivetrain {

// Must not hold the thread up. Seconds are the record's.
class FlightListener {
 public:
  virtual ~FlightListener() = default;
  virtual void at(const FlightPlace& place, double now_s) noexcept = 0;
  // `group`: its label, as long as the record lives.
  virtual void begun(uint64_t serial, const char* group, const FlightCall& call, double now_s) noexcept = 0;
  virtual void is(uint64_t serial, FlightState state, double now_s) noexcept = 0;
};

// Of this thread, whatever record it writes into; null ends it. Not owned. Returns the one before.
DRIVETRAIN_INTERNAL FlightListener* listen_to_this_thread(FlightListener* listener) noexcept;

}  // namespace drivetrain
