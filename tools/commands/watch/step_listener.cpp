#include "watch/step_listener.h"

#include <algorithm>

namespace drivetrain {

void StepListener::at(const FlightPlace& place, double now_s) noexcept {
  if (in_step_) part_over(place_, since_s_, now_s);
  if (place.step != step_) {
    step_ = place.step, step_begin_s_ = now_s;
    in_step_ = left_out_ == 0;
    if (left_out_ > 0) --left_out_;
  } else if (in_step_ && place.doing == FlightDoing::outside) {
    in_step_ = false;
    step_over(step_, step_begin_s_, now_s);
  }
  place_ = place, since_s_ = now_s;
}

void StepListener::begun(uint64_t serial, const char* group, const FlightCall& call, double now_s) noexcept {
  if (!in_step_) return;
  ++holding_;
  open_.push_back({serial, {group, call, now_s, 0, now_s}});
  call_begun(open_.back().call);
}

void StepListener::is(uint64_t serial, FlightState state, double now_s) noexcept {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.serial == serial; });
  if (found == open_.end()) return;
  Call& call = found->call;
  if (state == FlightState::waiting) {
    if (call.since_s < 0) call.since_s = now_s, ++holding_;
    return;
  }
  if (call.since_s >= 0) {
    call.held_up_s += now_s - call.since_s;
    held_up(call, call.since_s, now_s, --holding_ == 0);
    call.since_s = -1;
  }
  if (state == FlightState::pending) return;
  call_over(call, now_s);
  *found = open_.back();
  open_.pop_back();
}

}  // namespace drivetrain
