#include "watch/step_times.h"

#include "watch/step_words.h"

namespace drivetrain {

void StepTimes::part_over(const FlightPlace& place, double begin_s, double end_s) noexcept {
  seconds_[static_cast<size_t>(place.doing)] += end_s - begin_s;
}

void StepTimes::call_begun(const Call& call) noexcept {
  Calls& calls = calls_[static_cast<size_t>(call.what.op)];
  ++calls.calls, calls.bytes += call.what.bytes;
}

void StepTimes::held_up(const Call& call, double begin_s, double end_s, bool outermost) noexcept {
  if (outermost) calls_[static_cast<size_t>(call.what.op)].seconds += end_s - begin_s;
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
