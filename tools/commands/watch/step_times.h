// Where the time of a rank's steps goes: by part of the step, and in calls of its communicator. Seconds of the host's
// clock, so on an accelerator they say nothing about the device.
#pragma once

#include <array>

#include <drivetrain/value.h>

#include "internal.h"
#include "watch/step_listener.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL StepTimes final : public StepListener {
 public:
  // The first steps are left out: they allocate, and wait for whoever starts late.
  static constexpr int64_t kLeftOut = 1;

  StepTimes() : StepListener(0, kLeftOut) {}

  // {"steps", "seconds": {PART: sum}, "communication": {"seconds", "by": {OP: {"calls", "bytes", "seconds"}}}}: sums
  // over the steps that have ended. Communication is what this thread spent inside of calls and in waits for them; it
  // is part of the parts; a call within another one counts as the outer one.
  Value to_value() const;

 private:
  struct Calls {
    int64_t calls = 0, bytes = 0;
    double seconds = 0;
  };

  void part_over(const FlightPlace& place, double begin_s, double end_s) noexcept override;
  void step_over(int64_t, double, double) noexcept override { ++steps_; }
  void call_begun(const Call& call) noexcept override;
  void held_up(const Call& call, double begin_s, double end_s, bool outermost) noexcept override;

  int64_t steps_ = 0;
  std::array<double, kFlightDoings> seconds_ = {};
  std::array<Calls, kFlightOps> calls_ = {};
};

}  // namespace drivetrain
