#include "flight/step_times.h"

#include <iterator>

namespace drivetrain {

const char* part_name(FlightDoing doing) {
  constexpr const char* kNames[] = {"begin", "load",   "forward", "backward", "backward_weight", "send", "receive",
                                    "agree", "update", "reduce",  "replay",   "evaluate",        "save"};
  static_assert(std::size(kNames) == kFlightDoings);
  return kNames[static_cast<size_t>(doing)];
}

// Behind its update a step is over: an evaluation goes through forwards of its own.
void StepTimes::at(const FlightPlace& place, double now_s) noexcept {
  if (in_step_) seconds_[static_cast<size_t>(doing_)] += now_s - since_s_;
  if (place.step != step_) {
    if (first_ < 0) first_ = place.step;
    step_ = place.step, in_step_ = step_ >= first_ + kLeftOut;
  } else if (in_step_ && place.doing == FlightDoing::outside) {
    in_step_ = false, ++steps_;
  }
  doing_ = place.doing, since_s_ = now_s;
}

void StepTimes::begun(uint64_t serial, const char*, const FlightCall& call, double now_s) noexcept {
  if (!in_step_) return;
  op_of_[serial % FlightRecord::kEntries] = call.op;
  Calls& calls = calls_[static_cast<size_t>(call.op)];
  ++calls.calls, calls.bytes += call.bytes;
  call_since_s_ = now_s;
}

// From the begin of a call to its return, and from the begin of a wait to its end. A call that blocks goes to its end
// at once.
void StepTimes::is(uint64_t serial, FlightState state, double now_s) noexcept {
  if (!in_step_) return;
  if (state != FlightState::waiting && call_since_s_ > 0)
    calls_[static_cast<size_t>(op_of_[serial % FlightRecord::kEntries])].seconds += now_s - call_since_s_;
  call_since_s_ = state == FlightState::waiting ? now_s : 0;
}

Value StepTimes::to_value() const {
  Value seconds = Value::object(), by = Value::object(), communication = Value::object(), value = Value::object();
  for (size_t i = 0; i < seconds_.size(); ++i)
    if (seconds_[i] > 0) seconds.set(part_name(static_cast<FlightDoing>(i)), seconds_[i]);
  double sum = 0;
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].calls == 0) continue;
    Value one = Value::object();
    one.set("calls", calls_[i].calls), one.set("bytes", calls_[i].bytes), one.set("seconds", calls_[i].seconds);
    by.set(name_of(static_cast<FlightOp>(i)), std::move(one));
    sum += calls_[i].seconds;
  }
  communication.set("seconds", sum), communication.set("by", std::move(by));
  value.set("steps", steps_), value.set("seconds", std::move(seconds));
  value.set("communication", std::move(communication));
  return value;
}

}  // namespace drivetrain
