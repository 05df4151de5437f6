// Where the time of a rank's steps goes: by part of the step, and in calls of its communicator. Seconds of the host's
// clock, so on an accelerator they say nothing about the device.
#pragma once

#include <array>
#include <string>

#include <drivetrain/value.h>

#include "flight/listener.h"
#include "internal.h"

namespace drivetrain {

// "forward"; of `outside`, which is a step's begin until its first instruction, "begin".
DRIVETRAIN_INTERNAL const char* part_name(FlightDoing doing);

// Listens while it lives to the thread that made it.
class DRIVETRAIN_INTERNAL StepTimes final : public FlightListener {
 public:
  StepTimes() : before_(listen_to_this_thread(this)) {}
  ~StepTimes() override { listen_to_this_thread(before_); }
  StepTimes(const StepTimes&) = delete;
  StepTimes& operator=(const StepTimes&) = delete;

  // The first steps are left out: they allocate, and wait for whoever starts late.
  static constexpr int64_t kLeftOut = 1;

  void at(const FlightPlace& place, double now_s) noexcept override;
  void begun(uint64_t serial, const char* group, const FlightCall& call, double now_s) noexcept override;
  void is(uint64_t serial, FlightState state, double now_s) noexcept override;

  // {"steps", "seconds": {PART: sum}, "communication": {"seconds", "by": {OP: {"calls", "bytes", "seconds"}}}}: sums
  // over the steps that have ended. Communication is what this thread spent inside of calls and in waits for them; it
  // is part of the parts.
  Value to_value() const;

 private:
  struct Calls {
    int64_t calls = 0, bytes = 0;
    double seconds = 0;
  };

  FlightListener* const before_;
  int64_t steps_ = 0, step_ = 0, first_ = -1;
  bool in_step_ = false;
  FlightDoing doing_ = FlightDoing::outside;
  double since_s_ = 0, call_since_s_ = 0;
  FlightOp op_of_[FlightRecord::kEntries] = {};
  std::array<double, kFlightDoings> seconds_ = {};
  std::array<Calls, kFlightOps> calls_ = {};
};

}  // namespace drivetrain
